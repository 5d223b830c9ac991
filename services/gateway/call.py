"""One call of a client as it reached the gateway, before anything about it is believed."""

from collections.abc import Callable
from dataclasses import dataclass

from services.gateway.request import GenerationRequest


@dataclass(frozen=True, slots=True)
class Call:
    """`authorization` holds the value of every Authorization header; `read` validates the request and raises FieldError or MalformedBody.

    `surface` is "rest" or "grpc"; `timeout_s` is the client's own deadline, None when it set none.
    """

    request_id: str
    authorization: tuple[str, ...]
    surface: str
    read: Callable[[], GenerationRequest]
    timeout_s: float | None = None
