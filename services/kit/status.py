"""The one translation between InferwayError and google.rpc.Status (AIP-193), in both directions."""

import json
import math
from collections.abc import Iterator

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from services.kit import errors
from services.kit.errors import InferwayError

DOMAIN = "inferway"

_HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def http_status(error: InferwayError) -> int:
    """The HTTP status of an error, by its code and for a few reasons by the reason."""
    if error.reason == "BODY_TOO_LARGE":
        return 413
    return _HTTP_STATUS[error.code]


def to_status(error: InferwayError) -> status_pb2.Status:
    """The Status with exactly one ErrorInfo, plus RetryInfo and BadRequest where they apply."""
    status = status_pb2.Status(code=code_pb2.Code.Value(error.code), message=error.message)
    _pack(status, error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata))
    if error.retry_after_s is not None:
        nanos = round(error.retry_after_s * 1e9)
        delay = duration_pb2.Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
        _pack(status, error_details_pb2.RetryInfo(retry_delay=delay))
    if isinstance(error, errors.FieldError):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.param, description=error.message, reason=error.reason)
        _pack(status, error_details_pb2.BadRequest(field_violations=[violation]))
    return status


def from_rpc_error(rpc_error: grpc.aio.AioRpcError) -> InferwayError:
    """The error that the other side raised; without our ErrorInfo it is told by the gRPC code alone."""
    cls = _BY_CODE.get(rpc_error.code().name, errors.Unavailable)
    message = rpc_error.details() or rpc_error.code().name
    status = rpc_status.from_call(rpc_error)
    if status is None:
        return cls(message)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    found: dict[str, object] = {}
    for detail in status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            found = {"reason": info.reason, "metadata": dict(info.metadata)}
        elif detail.Unpack(retry):
            found["retry_after_s"] = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return cls(message, **found)  # type: ignore[arg-type]


def trailing_metadata(error: InferwayError) -> tuple[tuple[str, str | bytes], ...]:
    """Trailers of a refusal: the Status in binary form, and what the edge turns into an OpenAI-shaped HTTP answer."""
    return tuple(_trailers(error))


def openai_error(error: InferwayError) -> dict[str, object]:
    """The body that OpenAI clients expect: {"error": {"message", "type", "param", "code"}}."""
    body = {
        "message": error.message,
        "type": _openai_type(error),
        "param": error.metadata.get("param"),
        "code": _OPENAI_CODES.get(error.reason, error.reason.lower()),
    }
    return {"error": body}


def _trailers(error: InferwayError) -> Iterator[tuple[str, str | bytes]]:
    yield "grpc-status-details-bin", to_status(error).SerializeToString()
    yield "x-http-status", str(http_status(error))
    yield "x-openai-error", json.dumps(openai_error(error), ensure_ascii=True, separators=(",", ":"))
    if error.retry_after_s is not None:
        yield "retry-after", str(max(1, math.ceil(error.retry_after_s)))


def _openai_type(error: InferwayError) -> str:
    if error.reason == "INSUFFICIENT_QUOTA":
        return "insufficient_quota"
    return _OPENAI_TYPES.get(error.code, "server_error" if http_status(error) >= 500 else "invalid_request_error")


def _pack(status: status_pb2.Status, detail: Message) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)
    status.details.append(packed)


def _subclasses() -> Iterator[type[InferwayError]]:
    yield from (cls for cls in InferwayError.__subclasses__() if cls is not errors.ConfigError)


_BY_CODE = {cls.code: cls for cls in _subclasses()}

_OPENAI_TYPES = {
    "UNAUTHENTICATED": "authentication_error",
    "PERMISSION_DENIED": "permission_error",
    "RESOURCE_EXHAUSTED": "rate_limit_error",
}

# Codes that OpenAI clients and dashboards look for; every other reason is its own code in lower case.
_OPENAI_CODES: dict[str, str | None] = {
    "INVALID_FIELD": "invalid_value",
    "UNKNOWN_FIELD": "unknown_parameter",
    "UNSUPPORTED_FIELD": "unsupported_parameter",
    "MALFORMED_BODY": "invalid_json",
    "MISSING_API_KEY": "invalid_api_key",
    "INTERNAL": "internal_error",
}
