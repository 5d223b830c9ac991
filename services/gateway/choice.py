"""One of the answers that a request asks for: what was received of it so far, over all of its attempts."""

from dataclasses import dataclass, field

from services.gateway.answer import Piece
from services.gateway.attempt import Delta, EndReason, Finished
from services.gateway.logprobs import TokenLogprobs


@dataclass(slots=True)
class Choice:
    """Belongs to one charge. `max_output_tokens` bounds the tokens of all attempts together."""

    index: int
    max_output_tokens: int
    num_attempts: int = 0
    token_ids: list[int] = field(default_factory=list)
    """Output tokens received."""
    num_continued: int = 0
    """How many of them the last attempt goes on behind."""
    text_bytes: int = 0
    finish_reason: str = ""
    """"stop" or "length"; empty until it has ended like that."""
    cached_prompt_tokens: int | None = None
    """Of the first attempt with output, since a resume is not the client's doing; None before it."""
    _final_tokens: int | None = None
    _num_delivered: int = 0
    _position: int = 0
    _held_logprobs: list[TokenLogprobs] = field(default_factory=list)
    _num_logprobs: int = 0
    _num_prompt_logprobs: int = 0
    _prompt_position: int = 0
    _covered_bytes: int = 0

    def begin_attempt(self) -> None:
        """One more attempt, which goes on behind what was received."""
        self.num_attempts += 1
        # A replica lost between its last token and its end: the last token is made again, equal by the same seed and position.
        self.num_continued = min(len(self.token_ids), self.max_output_tokens - 1)
        self._num_delivered, self._position = len(self.token_ids), self.num_continued
        self._prompt_position = 0

    def add(self, delta: Delta) -> Piece:
        """Output arrived; returns what of it is new to the client."""
        if self.cached_prompt_tokens is None:
            self.cached_prompt_tokens = delta.cached_prompt_tokens
        begin, self._position = self._position, self._position + len(delta.token_ids)
        self.token_ids[begin : self._position] = delta.token_ids
        self.text_bytes += len(delta.text.encode())
        if not delta.logprobs and not delta.prompt_logprobs and not self._held_logprobs:
            return Piece(self.index, delta.text)
        new = delta.logprobs[max(0, self._num_logprobs - begin) :]
        self._num_logprobs += len(new)
        self._held_logprobs += new
        return Piece(self.index, delta.text, self._covered(), self._new_prompt_logprobs(delta.prompt_logprobs))

    def rest(self) -> Piece:
        """What was held back until the end: log-probabilities of tokens whose text never came, as that of a stop string."""
        held, self._held_logprobs = tuple(self._held_logprobs), []
        return Piece(self.index, "", held)

    def count(self, finished: Finished) -> None:
        """The last attempt's own count replaces what was received of it: it knows what was made until a cancel and what does not count."""
        self._final_tokens = max(self._num_delivered, self.num_continued + finished.output_tokens)
        if self.cached_prompt_tokens is None:
            self.cached_prompt_tokens = finished.cached_prompt_tokens

    def end(self, reason: EndReason) -> None:
        """It ended as it should: stop or length."""
        self.finish_reason = reason.value

    @property
    def was_taken(self) -> bool:
        """Whether a replica is known to have worked on it."""
        return self._final_tokens is not None or bool(self.token_ids)

    @property
    def output_tokens(self) -> int:
        """Tokens that count."""
        return len(self.token_ids) if self._final_tokens is None else self._final_tokens

    def _covered(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the tokens whose text is out; the others wait for it, so that both arrive together."""
        num_covered = 0
        for logprobs in self._held_logprobs:
            end = self._covered_bytes + len(logprobs.chosen.token)
            if end > self.text_bytes:
                break
            self._covered_bytes, num_covered = end, num_covered + 1
        covered = tuple(self._held_logprobs[:num_covered])
        del self._held_logprobs[:num_covered]
        return covered

    def _new_prompt_logprobs(self, logprobs: tuple[TokenLogprobs, ...]) -> tuple[TokenLogprobs, ...]:
        """Without those that an earlier attempt has sent."""
        new = logprobs[max(0, self._num_prompt_logprobs - self._prompt_position) :]
        self._prompt_position += len(logprobs)
        self._num_prompt_logprobs += len(new)
        return new
