"""What one request of a benchmark looks like: how long its prompt is, how much of it others share, how many tokens are asked for."""

from dataclasses import dataclass

_TEXT = "text:"


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """All in tokens; written PROMPT:SHARED:OUTPUT, with `text:` before it where prompts are pieces of text."""

    prompt: int
    shared: int
    output: int
    is_text: bool = False
    """Prompts are pieces of text, of which none share a beginning; otherwise they are random token ids."""

    def __post_init__(self) -> None:
        if not (0 <= self.shared <= self.prompt and self.prompt > 0 and self.output > 0):
            raise ValueError(f"{self} is no shape: 0 <= shared <= prompt and at least one token of prompt and of output")
        if self.is_text and self.shared:
            raise ValueError(f"{self} is no shape: pieces of text share nothing")

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """ValueError when the text is not three integers of a possible shape."""
        parts = [int(part) for part in text.removeprefix(_TEXT).split(":")]
        if len(parts) != 3:
            raise ValueError(f"{text!r} is not [text:]PROMPT:SHARED:OUTPUT")
        prompt, shared, output = parts
        return cls(prompt, shared, output, text.startswith(_TEXT))

    def __str__(self) -> str:
        return f"{_TEXT if self.is_text else ''}{self.prompt}:{self.shared}:{self.output}"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One cell of the table: requests of one shape, `concurrency` of them in flight."""

    shape: Shape
    concurrency: int

    @classmethod
    def parse(cls, text: str) -> "Point":
        """[text:]PROMPT:SHARED:OUTPUT@CONCURRENCY; ValueError for anything else."""
        shape, _, concurrency = text.partition("@")
        if int(concurrency) < 1:
            raise ValueError(f"{text!r}: at least one request is in flight")
        return cls(Shape.parse(shape), int(concurrency))

    @property
    def num_requests(self) -> int:
        """Two waves, so that the second meets a running batch; one where that is much to compute, since a point must end.

        Some at the least: how well guesses of tokens do hangs on the prompt.
        """
        is_much = self.shape.prompt - self.shape.shared > 512 or self.shape.prompt * self.concurrency > 16384
        least = 12 if self.shape.is_text else 3 if self.shape.prompt > 512 else 6
        return max(least, self.concurrency if is_much else 2 * self.concurrency)

    def __str__(self) -> str:
        return f"{self.shape}@{self.concurrency}"
