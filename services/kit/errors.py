"""The one tree of errors: domain code raises these, kit/status.py turns them into a google.rpc.Status once.

InferwayError
├── InvalidArgument ── FieldError, MalformedBody, ContextLengthExceeded
├── Unauthenticated        ├── PermissionDenied     ├── NotFound           ├── AlreadyExists
├── FailedPrecondition     ├── ResourceExhausted    ├── Unavailable        ├── DeadlineExceeded
├── Cancelled              ├── Unimplemented        ├── DataLoss           ├── Internal
└── ConfigError (start-up only; never travels)
"""

from collections.abc import Mapping
from typing import ClassVar


class InferwayError(Exception):
    """An error with a meaning on the wire.

    `code` is the name of a gRPC status code; `reason` a name of inferway.common.v1.ErrorReason without its prefix;
    `metadata` holds machine-readable facts (never a key, prompt or answer); `retry_after_s` says when trying again makes sense.
    """

    code: ClassVar[str] = "INTERNAL"
    default_reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})
        self.retry_after_s = retry_after_s


class InvalidArgument(InferwayError):
    """The caller has to change the request."""

    code = "INVALID_ARGUMENT"
    default_reason = "INVALID_FIELD"


class FieldError(InvalidArgument):
    """One field of the request is wrong; `param` is its path, for example messages[0].role."""

    def __init__(self, param: str, message: str, *, reason: str = "INVALID_FIELD") -> None:
        super().__init__(message, reason=reason, metadata={"param": param})
        self.param = param


class MalformedBody(InvalidArgument):
    """The body is not one JSON document in UTF-8."""

    default_reason = "MALFORMED_BODY"


class ContextLengthExceeded(InvalidArgument):
    """Prompt and output do not fit the model's context."""

    default_reason = "CONTEXT_LENGTH_EXCEEDED"


class Unauthenticated(InferwayError):
    """Nobody, or nobody known, asks."""

    code = "UNAUTHENTICATED"
    default_reason = "INVALID_API_KEY"


class PermissionDenied(InferwayError):
    """The caller is known and may not do this."""

    code = "PERMISSION_DENIED"
    default_reason = "PERMISSION_DENIED"


class NotFound(InferwayError):
    """No such object, or the caller may not see it."""

    code = "NOT_FOUND"
    default_reason = "NOT_FOUND"


class AlreadyExists(InferwayError):
    """The id is taken."""

    code = "ALREADY_EXISTS"
    default_reason = "ALREADY_EXISTS"


class FailedPrecondition(InferwayError):
    """The state of the object does not allow this."""

    code = "FAILED_PRECONDITION"
    default_reason = "FAILED_PRECONDITION"


class ResourceExhausted(InferwayError):
    """A bound is reached: a queue, a limit, a quota."""

    code = "RESOURCE_EXHAUSTED"
    default_reason = "RATE_LIMIT_EXCEEDED"


class Unavailable(InferwayError):
    """It may work again later."""

    code = "UNAVAILABLE"
    default_reason = "DEPENDENCY_UNAVAILABLE"


class DeadlineExceeded(InferwayError):
    """Time is up."""

    code = "DEADLINE_EXCEEDED"
    default_reason = "DEADLINE_EXCEEDED"


class Cancelled(InferwayError):
    """The caller does not want it any more."""

    code = "CANCELLED"
    default_reason = "CANCELLED"


class Unimplemented(InferwayError):
    """In the contract and not served yet."""

    code = "UNIMPLEMENTED"
    default_reason = "UNIMPLEMENTED"


class DataLoss(InferwayError):
    """Stored data is truncated or altered."""

    code = "DATA_LOSS"
    default_reason = "MODEL_CORRUPT"


class Internal(InferwayError):
    """A fault of the service; the caller sees no detail."""


class ConfigError(InferwayError):
    """The process cannot start with this configuration; the message lists every problem, one per line."""
