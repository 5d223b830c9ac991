"""What a gateway may ask of a replica: the request of one attempt, and the rules that it has to keep before it may enter the batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.engine.runner import SamplingParams
from services.kit.errors import (
    AlreadyExists,
    ContextLengthExceeded,
    FieldError,
    InferwayError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)

MAX_STOPS = 16
MAX_ID_CHARACTERS = 128
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class AttemptRequest:
    """One attempt as its gateway asked for it; see StartAttempt in engine.proto for the fields."""

    attempt_id: str
    model: str
    prompt_token_ids: Sequence[int]
    max_output_tokens: int
    request_id: str = ""
    charge_id: str = ""
    tenant_id: str = ""
    delivered_token_ids: Sequence[int] = ()
    delivered_text_bytes: int = 0
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: Sequence[str] = ()
    deadline_unix_ms: int = 0
    priority: int = 0
    choice: int = 0
    ignore_eos: bool = False
    traceparent: str = ""
    cache_salt: bytes = b""
    min_output_tokens: int = 0
    stop_token_ids: Sequence[int] = ()
    include_stop: bool = False
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptRules:
    """What this replica can do at all."""

    model: str
    vocab_size: int
    max_context_tokens: int
    """The smaller one of the model's context and the whole KV pool."""

    def check(self, request: AttemptRequest) -> None:
        """Raises an InferwayError that says what is wrong with the request, without quoting it."""
        for name in ("attempt_id", "request_id", "charge_id", "tenant_id"):
            if len(getattr(request, name)) > MAX_ID_CHARACTERS:
                raise FieldError(name, f"{name} must have at most {MAX_ID_CHARACTERS} characters")
        if not request.attempt_id:
            raise FieldError("attempt_id", "attempt_id must not be empty")
        if request.model != self.model:
            raise NotFound("this replica serves another model", reason="MODEL_NOT_FOUND", metadata={"model": self.model})
        self._check_tokens(request)
        _check_sampling(request.sampling)
        _check_stops(request.stop)

    def _check_tokens(self, request: AttemptRequest) -> None:
        num_prompt, num_delivered = len(request.prompt_token_ids), len(request.delivered_token_ids)
        if num_prompt == 0:
            raise FieldError("prompt_token_ids", "the prompt must have at least one token")
        for name, token_ids in (("prompt_token_ids", request.prompt_token_ids), ("delivered_token_ids", request.delivered_token_ids)):
            if token_ids and not 0 <= min(token_ids) <= max(token_ids) < self.vocab_size:
                message = f"a token id of {name} is outside the vocabulary"
                raise InvalidArgument(message, reason="TOKEN_OUT_OF_RANGE", metadata={"vocab_size": str(self.vocab_size)})
        if request.max_output_tokens < 1:
            raise FieldError("max_output_tokens", "max_output_tokens must be at least 1")
        if num_delivered > request.max_output_tokens:
            raise FieldError("delivered_token_ids", "more tokens were delivered than max_output_tokens allows")
        if num_prompt + request.max_output_tokens > self.max_context_tokens:
            counts = {
                "prompt_tokens": str(num_prompt),
                "max_output_tokens": str(request.max_output_tokens),
                "max_context_tokens": str(self.max_context_tokens),
            }
            raise ContextLengthExceeded("prompt and max_output_tokens do not fit the context", metadata=counts)


def can_retry(error: InferwayError) -> bool:
    """Whether another replica may do what this one refused."""
    return isinstance(error, Unavailable | ResourceExhausted | NotFound)


def duplicate(attempt_id: str) -> InferwayError:
    """The refusal of an id that runs already; the running attempt goes on."""
    return AlreadyExists("an attempt with this id runs already", reason="DUPLICATE_ATTEMPT", metadata={"attempt_id": attempt_id})


def _check_sampling(sampling: SamplingParams) -> None:
    if not math.isfinite(sampling.temperature) or not 0 <= sampling.temperature <= 2:
        raise FieldError("sampling.temperature", "temperature must be a number from 0 to 2")
    if not math.isfinite(sampling.top_p) or not 0 < sampling.top_p <= 1:
        raise FieldError("sampling.top_p", "top_p must be a number above 0 and at most 1")
    if sampling.top_k < 0:
        raise FieldError("sampling.top_k", "top_k must not be negative")
    if sampling.seed not in _INT64:
        raise FieldError("sampling.seed", "seed must be a 64-bit integer")


def _check_stops(stops: Sequence[str]) -> None:
    if len(stops) > MAX_STOPS:
        raise FieldError("stop", f"at most {MAX_STOPS} stop strings are allowed")
    if not all(stops):
        raise FieldError("stop", "a stop string must not be empty")
