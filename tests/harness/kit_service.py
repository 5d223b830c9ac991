"""A service of its own kind for tests of kit: four handlers over wrapped strings that do as the text says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.wrappers_pb2 import StringValue

from services.kit import errors
from services.kit.server import ServerSettings, ServiceState, serve

NAME = "test.kit.Echo"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def obey(text: str) -> str:
    """Raises what the text names, or returns it in upper case."""
    match text:
        case "field":
            raise errors.FieldError("messages[0].role", "must be one of system, user, assistant")
        case "later":
            raise errors.ResourceExhausted("queue is full", reason="QUEUE_FULL", retry_after_s=1.5)
        case "bug":
            raise RuntimeError("the secret is hunter2")
    return text.upper()


class Echo:
    """The running service, its port, its state and what its handlers saw."""

    def __init__(self, settings: ServerSettings, **options: Any) -> None:
        self.stop, self.started = asyncio.Event(), asyncio.Event()
        self.cancelled = asyncio.Event()
        self.state: ServiceState | None = None
        self._settings, self._options = settings, options

    async def serve(self, registry: Any) -> None:
        """Runs until `stop`."""
        await serve(self._settings, name="echo", registry=registry, register=self._register, run=self._run, stop=self.stop, **self._options)

    async def _run(self, state: ServiceState) -> None:
        self.state = state
        await state.set_ready(True)
        self.started.set()
        await asyncio.Event().wait()

    def _register(self, server: grpc.aio.Server) -> list[str]:
        types = {"request_deserializer": StringValue.FromString, "response_serializer": StringValue.SerializeToString}
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(self._unary, **types),
            "Stream": grpc.unary_stream_rpc_method_handler(self._stream, **types),
            "Talk": grpc.stream_stream_rpc_method_handler(self._talk, **types),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
        return [NAME]

    async def _unary(self, request: StringValue, _context: Context) -> StringValue:
        return StringValue(value=obey(request.value))

    async def _stream(self, request: StringValue, _context: Context) -> AsyncIterator[StringValue]:
        try:
            for word in request.value.split():
                if word == "wait":
                    await asyncio.Event().wait()
                yield StringValue(value=obey(word))
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def _talk(self, requests: AsyncIterator[StringValue], _context: Context) -> AsyncIterator[StringValue]:
        async for request in requests:
            yield StringValue(value=obey(request.value))


def caller(channel: grpc.aio.Channel, method: str, kind: str) -> Callable[..., Any]:
    """A multi-callable of the Echo service; kind as unary_unary, unary_stream, stream_stream."""
    make = getattr(channel, kind)
    return make(f"/{NAME}/{method}", StringValue.SerializeToString, StringValue.FromString)  # type: ignore[no-any-return]
