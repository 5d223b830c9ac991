"""The running account of one logical request: what was delivered so far, and in the end what is billed for it."""

from dataclasses import dataclass, field

from services.gateway import ids
from services.gateway.answer import Accepted, Usage
from services.gateway.attempt import Attempt, Delta, EndReason, Finished
from services.gateway.call import Call
from services.gateway.dispatch import Want
from services.gateway.keys import Identity
from services.gateway.models import ServedModel
from services.gateway.records import Outcome, SealedRequest
from services.gateway.request import GenerationRequest
from services.kit.errors import Cancelled, DeadlineExceeded, InferwayError, Internal

_NOTHING = Usage(prompt_tokens=0, cached_prompt_tokens=0, completion_tokens=0)


@dataclass(slots=True)
class Charge:
    """One charge. Whoever opens it owes `end` or `fail`, and then one sealed record; until then it counts as failed by a fault of ours."""

    call: Call
    identity: Identity
    request: GenerationRequest
    model: ServedModel
    prompt_token_ids: tuple[int, ...]
    max_output_tokens: int
    accepted_unix_ms: int
    deadline_unix_ms: int
    charge_id: str = ""
    completion_id: str = field(default_factory=ids.completion_id)
    num_attempts: int = 0
    token_ids: list[int] = field(default_factory=list)
    """Output tokens received, over all attempts."""
    num_continued: int = 0
    """How many of them the last attempt goes on behind."""
    text_bytes: int = 0
    ttft_s: float | None = None
    finish_reason: str = ""
    error: InferwayError | None = field(default_factory=lambda: Internal("the request ended in a way that nobody foresaw"))
    _cached_prompt_tokens: int | None = None
    _final_tokens: int | None = None
    _num_delivered: int = 0
    _position: int = 0

    def __post_init__(self) -> None:
        self.charge_id = self.charge_id or ids.charge_id(self.accepted_unix_ms)

    # What the next attempt is.

    def next_want(self, excluded_replica_ids: tuple[str, ...]) -> Want:
        """Counts one more attempt and says what it needs of the router."""
        self.num_attempts += 1
        # A replica lost between its last token and its end: the last token is made again, equal by the same seed and position.
        self.num_continued = min(len(self.token_ids), self.max_output_tokens - 1)
        self._num_delivered, self._position = len(self.token_ids), self.num_continued
        return Want(
            want_id=ids.attempt_id(self.charge_id, self.num_attempts),
            model=self.model.name,
            model_version=self.model.version,
            tenant_id=self.identity.tenant_id,
            prompt_tokens=len(self.prompt_token_ids) + self.num_continued,
            max_output_tokens=self.max_output_tokens - self.num_continued,
            deadline_unix_ms=self.deadline_unix_ms,
            excluded_replica_ids=excluded_replica_ids,
            request_id=self.call.request_id,
        )

    def attempt(self) -> Attempt:
        """The attempt that belongs to the last want: it goes on behind what was delivered."""
        return Attempt(
            attempt_id=ids.attempt_id(self.charge_id, self.num_attempts),
            request_id=self.call.request_id,
            charge_id=self.charge_id,
            tenant_id=self.identity.tenant_id,
            model=self.model.name,
            prompt_token_ids=self.prompt_token_ids,
            delivered_token_ids=tuple(self.token_ids[: self.num_continued]),
            delivered_text_bytes=self.text_bytes,
            sampling=self.request.sampling,
            max_output_tokens=self.max_output_tokens,
            stop=self.request.stop,
            cache_salt=self.identity.cache_salt,
            deadline_unix_ms=self.deadline_unix_ms,
            ignore_eos=self.request.ignore_eos,
        )

    # What happened.

    def add(self, delta: Delta) -> None:
        """Output arrived. Of the cached prompt tokens those of the first attempt with output count: a resume is not the client's doing."""
        if self._cached_prompt_tokens is None:
            self._cached_prompt_tokens = delta.cached_prompt_tokens
        end = self._position + len(delta.token_ids)
        self.token_ids[self._position : end] = delta.token_ids
        self._position = end
        self.text_bytes += len(delta.text.encode())

    def count(self, finished: Finished) -> None:
        """The last attempt's own count replaces what was received of it: it knows what was made until a cancel and what does not count."""
        self._final_tokens = max(self._num_delivered, self.num_continued + finished.output_tokens)
        if self._cached_prompt_tokens is None:
            self._cached_prompt_tokens = finished.cached_prompt_tokens

    def end(self, reason: EndReason) -> None:
        """It ended as it should: stop or length."""
        self.finish_reason, self.error = reason.value, None

    def fail(self, error: InferwayError) -> None:
        """It ended by an error, a deadline (DeadlineExceeded) or the client's will (Cancelled)."""
        self.error = error

    # What comes of it.

    def accepted(self) -> Accepted:
        """What the client learns first."""
        return Accepted(self.completion_id, self.model.name, self.model.version, self.accepted_unix_ms // 1000, self.request)

    @property
    def outcome(self) -> Outcome:
        """See the table of cases in docs/billing.md."""
        if self.error is None:
            return Outcome.FINISHED
        if isinstance(self.error, Cancelled):
            return Outcome.CANCELLED
        if isinstance(self.error, DeadlineExceeded):
            return Outcome.DEADLINE
        return Outcome.INTERRUPTED if self._has_delivered else Outcome.FAILED

    @property
    def usage(self) -> Usage:
        """What is billed: nothing to a client that got an error instead of any output, or that left before a replica took the request."""
        if self.outcome is Outcome.CANCELLED:
            billed = self._final_tokens is not None or bool(self.token_ids)
        else:
            billed = self.outcome is Outcome.FINISHED or self._has_delivered
        if not billed:
            return _NOTHING
        completion_tokens = len(self.token_ids) if self._final_tokens is None else self._final_tokens
        return Usage(len(self.prompt_token_ids), self._cached_prompt_tokens or 0, completion_tokens)

    @property
    def surface(self) -> str:
        """rest, rest-stream or grpc."""
        return "rest-stream" if self.call.surface == "rest" and self.request.stream else self.call.surface

    def seal(self, now_unix_ms: int) -> SealedRequest:
        """The record of it all."""
        usage = self.usage
        return SealedRequest(
            charge_id=self.charge_id,
            request_id=self.call.request_id,
            completion_id=self.completion_id,
            tenant_id=self.identity.tenant_id,
            key_id=self.identity.key_id,
            model=self.model.name,
            model_version=self.model.version if self.ttft_s is not None else "",
            outcome=self.outcome,
            finish_reason=self.finish_reason,
            prompt_tokens=usage.prompt_tokens,
            cached_prompt_tokens=usage.cached_prompt_tokens,
            completion_tokens=usage.completion_tokens,
            accepted_unix_ms=self.accepted_unix_ms,
            sealed_unix_ms=now_unix_ms,
            num_attempts=self.num_attempts,
            surface=self.surface,
            error_reason=self.error.reason if self.error is not None else "",
            ttft_ms=round((self.ttft_s or 0) * 1000),
        )

    @property
    def _has_delivered(self) -> bool:
        """Whether the client got output: one that waits for the whole answer has nothing until the end."""
        return self.request.stream and bool(self.token_ids)
