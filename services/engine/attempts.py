"""What a gateway may ask of a replica: the request of one attempt, and the rules that it has to keep before it may enter the batch."""

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
MAX_STOP_TOKENS = 16
MAX_LOGPROBS = 20
MAX_LOGIT_BIASES = 1024
MAX_SALT_BYTES = 64
MAX_CHOICES = 1 << 32
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
        if len(request.cache_salt) > MAX_SALT_BYTES:
            raise FieldError("cache_salt", f"cache_salt must have at most {MAX_SALT_BYTES} bytes")
        if not 0 <= request.choice < MAX_CHOICES:
            raise FieldError("choice", "choice must be a 32-bit number")
        self._check_tokens(request)
        self._check_ends(request)
        self._check_biases(request.sampling.logit_bias)
        _check_sampling(request.sampling)
        _check_logprobs(request)

    def _check_tokens(self, request: AttemptRequest) -> None:
        num_prompt, num_delivered = len(request.prompt_token_ids), len(request.delivered_token_ids)
        if num_prompt == 0:
            raise FieldError("prompt_token_ids", "the prompt must have at least one token")
        for name, token_ids in (("prompt_token_ids", request.prompt_token_ids), ("delivered_token_ids", request.delivered_token_ids)):
            self._check_ids(name, token_ids)
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

    def _check_ids(self, name: str, token_ids: Sequence[int]) -> None:
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < self.vocab_size:
            metadata = {"vocab_size": str(self.vocab_size), "param": name}
            raise InvalidArgument(f"a token id of {name} is outside the vocabulary", reason="TOKEN_OUT_OF_RANGE", metadata=metadata)

    def _check_ends(self, request: AttemptRequest) -> None:
        if not 0 <= request.min_output_tokens <= request.max_output_tokens:
            raise FieldError("min_output_tokens", "min_output_tokens must be from 0 to max_output_tokens")
        if len(request.stop_token_ids) > MAX_STOP_TOKENS:
            raise FieldError("stop_token_ids", f"at most {MAX_STOP_TOKENS} stop tokens are allowed")
        self._check_ids("stop_token_ids", request.stop_token_ids)
        if len(request.stop) > MAX_STOPS:
            raise FieldError("stop", f"at most {MAX_STOPS} stop strings are allowed")
        if not all(request.stop):
            raise FieldError("stop", "a stop string must not be empty")

    def _check_biases(self, biases: Sequence[tuple[int, float]]) -> None:
        if len(biases) > MAX_LOGIT_BIASES:
            raise FieldError("sampling.logit_bias", f"at most {MAX_LOGIT_BIASES} tokens may have a bias")
        token_ids = [token_id for token_id, _ in biases]
        self._check_ids("sampling.logit_bias", token_ids)
        if len(set(token_ids)) < len(token_ids):
            raise FieldError("sampling.logit_bias", "a token has more than one bias")
        if not all(-100 <= bias <= 100 for _, bias in biases):
            raise FieldError("sampling.logit_bias", "a bias must be a number from -100 to 100")


def can_retry(error: InferwayError) -> bool:
    """Whether another replica may do what this one refused."""
    return isinstance(error, Unavailable | ResourceExhausted | NotFound)


def duplicate(attempt_id: str) -> InferwayError:
    """The refusal of an id that runs already; the running attempt goes on."""
    return AlreadyExists("an attempt with this id runs already", reason="DUPLICATE_ATTEMPT", metadata={"attempt_id": attempt_id})


def _check_sampling(sampling: SamplingParams) -> None:
    """Every comparison is false for what is not a number."""
    if not 0 <= sampling.temperature <= 2:
        raise FieldError("sampling.temperature", "temperature must be a number from 0 to 2")
    if not 0 < sampling.top_p <= 1:
        raise FieldError("sampling.top_p", "top_p must be a number above 0 and at most 1")
    if sampling.top_k < 0:
        raise FieldError("sampling.top_k", "top_k must not be negative")
    if not 0 <= sampling.min_p <= 1:
        raise FieldError("sampling.min_p", "min_p must be a number from 0 to 1")
    if not 0 < sampling.repetition_penalty <= 2:
        raise FieldError("sampling.repetition_penalty", "repetition_penalty must be a number above 0 and at most 2")
    for name, penalty in (("frequency_penalty", sampling.frequency_penalty), ("presence_penalty", sampling.presence_penalty)):
        if not -2 <= penalty <= 2:
            raise FieldError(f"sampling.{name}", f"{name} must be a number from -2 to 2")
    if sampling.seed not in _INT64:
        raise FieldError("sampling.seed", "seed must be a 64-bit integer")


def _check_logprobs(request: AttemptRequest) -> None:
    for name, wanted in (("num_logprobs", request.num_logprobs), ("num_prompt_logprobs", request.num_prompt_logprobs)):
        if wanted is not None and not 0 <= wanted <= MAX_LOGPROBS:
            raise FieldError(name, f"{name} must be from 0 to {MAX_LOGPROBS}")
