"""Spans that go to an OTLP collector. Loaded only where one is configured."""

from __future__ import annotations

import threading
import time

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.kit.tracing import Attributes, Span

_EXPORT_DELAY_MS = 1000
_EXPORT_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 2.0
# OpenTelemetry's rule for servers: what the caller did wrong, or no longer wants, is no error of the service.
_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
_PROPAGATOR = TraceContextTextMapPropagator()


class OtlpTracer:
    """A Tracer. `endpoint` is host:port or a URL; https means TLS. `sample_ratio` is the share of traces that begin here and are kept."""

    def __init__(self, service: str, endpoint: str, sample_ratio: float) -> None:
        url = endpoint if "://" in endpoint else f"http://{endpoint}"
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=_EXPORT_TIMEOUT_S)
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": f"inferway-{service}"}),
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter, schedule_delay_millis=_EXPORT_DELAY_MS))
        self._tracer = self._provider.get_tracer("inferway")

    def start(self, name: str, traceparent: str, attributes: Attributes, began_s: float | None = None) -> Span:
        """See Tracer."""
        context = _PROPAGATOR.extract({"traceparent": traceparent})
        span = self._tracer.start_span(name, context, SpanKind.SERVER, attributes, start_time=_unix_ns(began_s))
        return OtlpSpan(self._tracer, span) if span.is_recording() else Span()

    def close(self) -> None:
        """See Tracer. A collector that does not answer costs no more than two seconds."""
        timer = threading.Timer(_CLOSE_TIMEOUT_S, self._exporter.shutdown)
        timer.start()
        self._provider.shutdown()
        timer.cancel()


class OtlpSpan(Span):
    """A span of a traced request."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self._failed = False

    @property
    def traceparent(self) -> str:
        """See Span."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self._span))
        return carrier["traceparent"]

    def set(self, attributes: Attributes) -> None:
        """See Span."""
        if self._span.is_recording():
            self._span.set_attributes(attributes)

    def fail(self, code: str, error_type: str) -> None:
        """See Span."""
        if self._failed or not self._span.is_recording():
            return
        self._failed = True
        self._span.set_attribute("error.type", error_type)
        if code in _FAULTS:
            self._span.set_status(Status(StatusCode.ERROR, error_type))

    def child(self, name: str, attributes: Attributes, began_s: float | None = None) -> Span:
        """See Span."""
        context = trace.set_span_in_context(self._span)
        span = self._tracer.start_span(name, context, attributes=attributes, start_time=_unix_ns(began_s))
        return OtlpSpan(self._tracer, span)

    def end(self, ended_s: float | None = None) -> None:
        """See Span."""
        if self._span.is_recording():
            self._span.end(_unix_ns(ended_s))


def _unix_ns(monotonic_s: float | None) -> int | None:
    return None if monotonic_s is None else time.time_ns() - round((time.monotonic() - monotonic_s) * 1e9)
