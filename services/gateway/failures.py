"""Turns what an engine or the router says, a reason and a sentence, into the typed error that belongs to the reason."""

from services.gateway.attempt import Failed
from services.kit.errors import (
    ContextLengthExceeded,
    DataLoss,
    DeadlineExceeded,
    InferwayError,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)

# By inferway/common/v1/error_reason.proto. What is not listed here is a fault of ours, and its text stays inside.
_BY_REASON: dict[str, type[InferwayError]] = {
    "CONTEXT_LENGTH_EXCEEDED": ContextLengthExceeded,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "DRAINING": Unavailable,
    "INVALID_FIELD": InvalidArgument,
    "TOKEN_OUT_OF_RANGE": InvalidArgument,
    "UNSUPPORTED_FIELD": InvalidArgument,
    "ENGINE_QUEUE_FULL": ResourceExhausted,
    "MODEL_CORRUPT": DataLoss,
    "NO_READY_REPLICA": Unavailable,
    "QUEUE_FULL": ResourceExhausted,
    "QUEUE_TIMEOUT": DeadlineExceeded,
    "REPLICA_LOST": Unavailable,
    "OUTBOX_FULL": ResourceExhausted,
    "ROUTER_UNAVAILABLE": Unavailable,
}
_RETRY_AFTER_S = 1.0


def typed_error(reason: str, message: str, retry_after_s: float | None = None) -> InferwayError:
    """The error for a reason of the catalogue."""
    cls = _BY_REASON.get(reason)
    if cls is None:
        return Internal("the request failed inside the service; quote the request id when you report it", reason=reason or "INTERNAL")
    if cls in (Unavailable, ResourceExhausted) and retry_after_s is None:
        retry_after_s = _RETRY_AFTER_S
    return cls(message[:300], reason=reason, retry_after_s=retry_after_s)


def attempt_error(failure: Failed) -> InferwayError:
    """The error of a request whose last attempt failed."""
    return typed_error(failure.reason, failure.message)
