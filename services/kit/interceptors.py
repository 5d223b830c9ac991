"""What happens around every RPC handler, as one visible list: metrics, request context, errors, tracing (outermost first)."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

import grpc

from services.kit import errors, logs, status, tracing
from services.kit.metrics import RpcMetrics
from services.kit.tracing import Span, Tracer

log = logging.getLogger(__name__)

_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_DEADLINE_SLACK_S = 0.05

# grpc's own class cannot be subscribed at run time.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Around = Callable[[str, Any, "Context"], contextlib.AbstractAsyncContextManager[None]]


def server_interceptors(
    rpc_metrics: RpcMetrics, tracer: Tracer | None = None, long_streams: Collection[str] = ()
) -> Sequence[grpc.aio.ServerInterceptor]:
    """All of them in one, as each interceptor has a generator of its own that every message of a stream passes through.

    `long_streams` names methods whose calls live as long as their process: a span would say nothing.
    """
    # Spans are innermost, because only there errors still have their types.
    spans = [_Traced(tracer, long_streams).around] if tracer is not None else []
    return [_Wrapping([_Counted(rpc_metrics).around, _request_context, _typed_errors, *spans])]


def request_id(context: Context) -> str:
    """The id that the edge set, or a fresh one when it is missing or not sane."""
    for key, value in context.invocation_metadata() or ():
        if key == "x-request-id" and isinstance(value, str) and _SANE_REQUEST_ID.fullmatch(value):
            return value
    return str(uuid.uuid4())


class _Wrapping(grpc.aio.ServerInterceptor):
    """Runs handlers of all four kinds inside async context managers, the first outermost. A method is wrapped once, not at every call."""

    def __init__(self, arounds: Sequence[Around]) -> None:
        self._arounds = arounds
        self._wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = handler_call_details.method
        if method not in self._wrapped:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._wrapped[method] = self._wrap(method, handler)
        return self._wrapped[method]

    def _wrap(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        kind = ("stream" if handler.request_streaming else "unary") + "_" + ("stream" if handler.response_streaming else "unary")
        inner = getattr(handler, kind)
        # A streaming handler that is a coroutine writes through its context; grpc's own health service does.
        wrapped = self._streaming(method, inner) if inspect.isasyncgenfunction(inner) else self._unary(method, inner)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(wrapped, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer)  # type: ignore[no-any-return]

    @contextlib.asynccontextmanager
    async def _around(self, method: str, request: Any, context: Context) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for around in self._arounds:
                await stack.enter_async_context(around(method, request, context))
            yield

    def _unary(self, method: str, inner: Any) -> Any:
        async def call(request: Any, context: Context) -> Any:
            async with self._around(method, request, context):
                return await inner(request, context)

        return call

    def _streaming(self, method: str, inner: Any) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self._around(method, request, context), contextlib.aclosing(inner(request, context)) as responses:
                async for response in responses:
                    yield response

        return call


class _Counted:
    def __init__(self, rpc_metrics: RpcMetrics) -> None:
        self._metrics = rpc_metrics

    @contextlib.asynccontextmanager
    async def around(self, method: str, _request: Any, context: Context) -> AsyncIterator[None]:
        begin, code = time.monotonic(), "OK"
        self._metrics.started.labels(method).inc()
        self._metrics.in_flight.labels(method).inc()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            code = "CANCELLED"
            raise
        except BaseException:
            code = _code_name(context)
            raise
        finally:
            self._metrics.in_flight.labels(method).dec()
            self._metrics.handled.labels(method, code).inc()
            self._metrics.duration.labels(method).observe(time.monotonic() - begin)


@contextlib.asynccontextmanager
async def _request_context(_method: str, _request: Any, context: Context) -> AsyncIterator[None]:
    with _logged(request_id(context)):
        yield


@contextlib.asynccontextmanager
async def _typed_errors(method: str, _request: Any, context: Context) -> AsyncIterator[None]:
    try:
        yield
    except errors.InferwayError as error:
        await _abort(context, error)
    except (grpc.aio.AbortError, asyncio.CancelledError, GeneratorExit):
        raise
    except Exception:
        # The one broad catch of the mesh: an unknown exception must not leak its text to the caller.
        log.exception("unexpected error in %s", method)
        await _abort(context, errors.Internal("internal error; quote the request id when you report it"))


class _Traced:
    """One span for each call, ended on every path with the status that the caller gets."""

    def __init__(self, tracer: Tracer, long_streams: Collection[str]) -> None:
        self._tracer = tracer
        self._long_streams = frozenset(long_streams)

    @contextlib.asynccontextmanager
    async def around(self, method: str, _request: Any, context: Context) -> AsyncIterator[None]:
        service, _, name = method.strip("/").rpartition("/")
        if service.startswith("grpc.") or name in self._long_streams:  # Health checks and reflection are nobody's request.
            yield
            return
        facts = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
        span = self._tracer.start(f"{service}/{name}", _traceparent(context), facts)
        # A stream that breaks while a message is being sent leaves its handler suspended; this callback comes at once.
        context.add_done_callback(lambda _: _end_span(span, context, asyncio.CancelledError()))  # type: ignore[arg-type]
        with tracing.active(span):
            try:
                yield
            except BaseException as error:
                _end_span(span, context, error)
                raise
            _end_span(span, context, None)


def _end_span(span: Span, context: Context, error: BaseException | None) -> None:
    code = "OK"
    if error is not None:
        code, error_type = tracing.failure(error)
        if isinstance(error, grpc.aio.AbortError):
            code = error_type = _code_name(context)
        elif code == tracing.CANCELLED and _is_late(context):
            code = error_type = "DEADLINE_EXCEEDED"
        span.fail(code, error_type)
    span.set({"rpc.grpc.status_code": getattr(grpc.StatusCode, code).value[0]})
    span.end()


def _is_late(context: Context) -> bool:
    """Whether a cancelled call was cancelled by its deadline: grpc.aio does not say which it was."""
    remaining_s = context.time_remaining()
    return remaining_s is not None and remaining_s < _DEADLINE_SLACK_S


def _traceparent(context: Context) -> str:
    return next((str(value) for key, value in context.invocation_metadata() or () if key == "traceparent"), "")


async def _abort(context: Context, error: errors.InferwayError) -> None:
    code = getattr(grpc.StatusCode, error.code)
    await context.abort(code, error.message, trailing_metadata=status.trailing_metadata(error))


@contextlib.contextmanager
def _logged(request: str) -> Iterator[None]:
    """Log context that survives a streaming handler being resumed in another task's context."""
    block = logs.context(request=request)
    block.__enter__()
    try:
        yield
    finally:
        # A generator closed from another task has another context: the variable is then not ours to reset.
        with contextlib.suppress(ValueError):
            block.__exit__(None, None, None)


def _code_name(context: Context) -> str:
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"
