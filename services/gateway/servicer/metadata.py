"""What the gateway believes of a call's metadata: the credentials and the request id; identity never comes from anything else."""

from collections.abc import Callable
from typing import Any

import grpc

from services.gateway.call import Call
from services.gateway.request import GenerationRequest
from services.kit.errors import FieldError
from services.kit.interceptors import request_id

Context = grpc.aio.ServicerContext[Any, Any]


def authorization(context: Context) -> tuple[str, ...]:
    """The value of every Authorization header, in order."""
    return tuple(_values(context, "authorization"))


def make_call(context: Context, surface: str, read: Callable[[], GenerationRequest]) -> Call:
    """The call; an idempotency key makes `read` fail, because ignoring it could bill twice."""

    def checked_read() -> GenerationRequest:
        if _values(context, "idempotency-key"):
            raise FieldError("Idempotency-Key", "idempotency keys are not supported yet; leave the header out", reason="UNSUPPORTED_FIELD")
        return read()

    return Call(request_id(context), authorization(context), surface, checked_read, context.time_remaining())


async def send_headers(context: Context, call: Call, *, stream: bool) -> None:
    """Sends the response headers; after this a refusal can no longer change the status."""
    headers = [("x-request-id", call.request_id)]
    if stream:
        headers.append(("cache-control", "no-cache"))
    await context.send_initial_metadata(tuple(headers))


def when_done(context: Context, callback: Callable[[], None]) -> None:
    """Calls back when the call has ended, whichever side ended it."""
    context.add_done_callback(lambda _: callback())  # type: ignore[arg-type]


def _values(context: Context, name: str) -> list[str]:
    found = (value for key, value in context.invocation_metadata() or () if key == name)
    return [value if isinstance(value, str) else value.decode("latin-1") for value in found]
