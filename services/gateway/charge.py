"""The running account of one logical request: what was delivered so far, and in the end what is billed for it."""

from dataclasses import dataclass, field

from services.gateway import ids
from services.gateway.answer import Accepted, Echo, Usage
from services.gateway.attempt import Attempt
from services.gateway.call import Call
from services.gateway.choice import Choice
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
    completion_id: str = ""
    echo: Echo | None = None
    choices: tuple[Choice, ...] = field(init=False)
    ttft_s: float | None = None
    error: InferwayError | None = field(default_factory=lambda: Internal("the request ended in a way that nobody foresaw"))

    def __post_init__(self) -> None:
        self.charge_id = self.charge_id or ids.charge_id(self.accepted_unix_ms)
        self.completion_id = self.completion_id or ids.completion_id(is_chat=self.request.prompt is None)
        self.choices = tuple(Choice(index, self.max_output_tokens) for index in range(self.request.num_choices))

    # What the next attempt of a choice is.

    def next_want(self, choice: Choice, excluded_replica_ids: tuple[str, ...]) -> Want:
        """Begins one more attempt and says what it needs of the router."""
        choice.begin_attempt()
        return Want(
            want_id=ids.attempt_id(self.charge_id, choice.index, choice.num_attempts),
            model=self.model.name,
            model_version=self.model.version,
            tenant_id=self.identity.tenant_id,
            prompt_tokens=len(self.prompt_token_ids) + choice.num_continued,
            max_output_tokens=self.max_output_tokens - choice.num_continued,
            deadline_unix_ms=self.deadline_unix_ms,
            excluded_replica_ids=excluded_replica_ids,
            request_id=self.call.request_id,
        )

    def attempt(self, choice: Choice) -> Attempt:
        """The attempt that belongs to the choice's last want: it goes on behind what was delivered."""
        request = self.request
        return Attempt(
            attempt_id=ids.attempt_id(self.charge_id, choice.index, choice.num_attempts),
            request_id=self.call.request_id,
            charge_id=self.charge_id,
            tenant_id=self.identity.tenant_id,
            model=self.model.name,
            prompt_token_ids=self.prompt_token_ids,
            delivered_token_ids=tuple(choice.token_ids[: choice.num_continued]),
            delivered_text_bytes=choice.text_bytes,
            sampling=request.sampling,
            max_output_tokens=self.max_output_tokens,
            stop=request.stop,
            cache_salt=self.identity.cache_salt,
            deadline_unix_ms=self.deadline_unix_ms,
            choice=choice.index,
            min_output_tokens=request.min_output_tokens,
            stop_token_ids=request.stop_token_ids,
            include_stop=request.include_stop,
            ignore_eos=request.ignore_eos,
            num_logprobs=request.num_logprobs,
            num_prompt_logprobs=request.num_prompt_logprobs,
        )

    # How it ended.

    def end(self) -> None:
        """Every choice ended as it should."""
        self.error = None

    def fail(self, error: InferwayError) -> None:
        """It ended by an error, a deadline (DeadlineExceeded) or the client's will (Cancelled)."""
        self.error = error

    # What comes of it.

    def accepted(self) -> Accepted:
        """What the client learns first."""
        return Accepted(self.completion_id, self.model.name, self.model.version, self.accepted_unix_ms // 1000, self.request, self.echo)

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """Of every choice; those that had no end of their own were cancelled."""
        return tuple(choice.finish_reason or "cancelled" for choice in self.choices)

    @property
    def finish_reason(self) -> str:
        """Of the first choice, for the record; empty unless all ended as they should."""
        return self.choices[0].finish_reason if self.error is None else ""

    @property
    def num_attempts(self) -> int:
        """Attempts of all choices."""
        return sum(choice.num_attempts for choice in self.choices)

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
            billed = any(choice.was_taken for choice in self.choices)
        else:
            billed = self.outcome is Outcome.FINISHED or self._has_delivered
        if not billed:
            return _NOTHING
        num_prompt = len(self.prompt_token_ids)
        # Of the cached prompt tokens those of the first choice count: the others read what it has just computed.
        cached = min(self.choices[0].cached_prompt_tokens or 0, num_prompt)
        return Usage(num_prompt, cached, sum(choice.output_tokens for choice in self.choices))

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
        return self.request.stream and any(choice.token_ids for choice in self.choices)
