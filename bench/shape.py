"""What one request of a benchmark looks like: how long its prompt is, how much of it others share, how many tokens are asked for."""

from dataclasses import dataclass
from random import Random

_TOKEN_IDS = range(1000, 40000)
"""Ordinary text tokens of the vocabulary: no control tokens at its start, no rare ones at its end."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """All in tokens; written PROMPT:SHARED:OUTPUT."""

    prompt: int
    shared: int
    output: int

    def __post_init__(self) -> None:
        if not (0 <= self.shared <= self.prompt and self.prompt > 0 and self.output > 0):
            raise ValueError(f"{self} is no shape: 0 <= shared <= prompt and at least one token of prompt and of output")

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """ValueError when the text is not three integers of a possible shape."""
        parts = [int(part) for part in text.split(":")]
        if len(parts) != 3:
            raise ValueError(f"{text!r} is not PROMPT:SHARED:OUTPUT")
        return cls(*parts)

    def prompt_of(self, serial: int) -> list[int]:
        """The prompt number `serial`: the shared part is the same for all of them, the rest differs from every other prompt's."""
        shared = Random(f"shared {self.shared}").choices(_TOKEN_IDS, k=self.shared)
        return shared + Random(f"own {serial} {self}").choices(_TOKEN_IDS, k=self.prompt - self.shared)

    def __str__(self) -> str:
        return f"{self.prompt}:{self.shared}:{self.output}"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One cell of the table: requests of one shape, `concurrency` of them in flight."""

    shape: Shape
    concurrency: int

    @classmethod
    def parse(cls, text: str) -> "Point":
        """PROMPT:SHARED:OUTPUT@CONCURRENCY; ValueError for anything else."""
        shape, _, concurrency = text.partition("@")
        if int(concurrency) < 1:
            raise ValueError(f"{text!r}: at least one request is in flight")
        return cls(Shape.parse(shape), int(concurrency))

    @property
    def num_requests(self) -> int:
        """Two waves, so that the second meets a running batch; one where that is much to compute, since a point must end."""
        is_much = self.shape.prompt - self.shape.shared > 512 or self.shape.prompt * self.concurrency > 16384
        waves = 1 if is_much else 2
        return max(3, waves * self.concurrency)

    def __str__(self) -> str:
        return f"{self.shape}@{self.concurrency}"
