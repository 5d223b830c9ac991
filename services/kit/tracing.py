"""Spans: the one API of all services. Without a collector, and in a request that is not traced, they do nothing and cost nothing."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from services.kit.errors import InferwayError

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]

CANCELLED = "CANCELLED"


class Span:
    """The span of a request that is not traced: does nothing. Those of traced requests are in `otlp.py`.

    Times are seconds of the monotonic clock; None means now. Attributes say facts about a request, never what was said in it.
    """

    @property
    def traceparent(self) -> str:
        """W3C trace context for the next process; empty when the request is not traced."""
        return ""

    def set(self, attributes: Attributes) -> None:
        """Adds attributes; without effect after the end."""

    def fail(self, code: str, error_type: str) -> None:
        """What the span was for did not succeed: the name of a gRPC status code, and a word for the reason. The first failure stays."""

    def child(self, name: str, attributes: Attributes, began_s: float | None = None) -> Span:
        """A part of this span."""
        return self

    def end(self, ended_s: float | None = None) -> None:
        """The span is over. A second call does nothing."""


class Tracer(Protocol):
    """Where traced requests enter a process."""

    def start(self, name: str, traceparent: str, attributes: Attributes, began_s: float | None = None) -> Span:
        """Goes on with the caller's trace; begins one when there is none, or when it is malformed."""

    def close(self) -> None:
        """Sends what is left, for a bounded time. Blocks."""


_NOTHING = Span()
_current: contextvars.ContextVar[Span] = contextvars.ContextVar("span", default=_NOTHING)


def open_tracer(service: str, otlp_endpoint: str | None, sample_ratio: float) -> Tracer | None:
    """A tracer of its own for every service; None when no collector is configured. Only with one is the SDK loaded: it takes long."""
    if otlp_endpoint is None:
        return None
    from services.kit.otlp import OtlpTracer

    return OtlpTracer(service, otlp_endpoint, sample_ratio)


def current() -> Span:
    """The span in which this code runs."""
    return _current.get()


@contextlib.contextmanager
def span(name: str, attributes: Attributes | None = None) -> Iterator[Span]:
    """A part of the current span, and itself the current one inside the block. It ends with the block and tells how that ended."""
    with active(current().child(name, attributes or {})) as part:
        yield part


@contextlib.contextmanager
def active(span: Span) -> Iterator[Span]:
    """Makes the span the current one until the end of the block, which is its own end."""
    token = _current.set(span)
    try:
        yield span
    except BaseException as error:
        span.fail(*failure(error))
        raise
    finally:
        # A generator closed from another task has another context: the variable is then not ours to reset.
        with contextlib.suppress(ValueError):
            _current.reset(token)
        span.end()


def failure(error: BaseException) -> tuple[str, str]:
    """Status code and reason of an exception; never its text, which may quote a caller."""
    if isinstance(error, InferwayError):
        return error.code, error.reason
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return CANCELLED, CANCELLED
    return "INTERNAL", type(error).__name__
