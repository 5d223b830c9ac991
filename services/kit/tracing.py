"""OpenTelemetry: spans go to an OTLP collector when one is configured, and nowhere otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    # Importing the SDK takes as long as the rest of a service: only a process that exports spans pays for it.
    from opentelemetry.sdk.trace import TracerProvider

# Streams that live as long as their process: one span over them would say nothing.
_LONG_STREAMS = ("Session", "Dispatch", "WatchLoad", "WatchKvEvents", "Watch", "LeaseKeepAlive", "ServerReflectionInfo")


def set_up(service: str, otlp_endpoint: str | None, sample_ratio: float) -> TracerProvider | None:
    """Installs the process's tracer; None when no collector is configured, and then spans cost nothing."""
    if otlp_endpoint is None:
        return None
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    resource = Resource.create({"service.name": f"inferway-{service}"})
    provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(sample_ratio)))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=otlp_endpoint, insecure=True, timeout=5)))
    trace.set_tracer_provider(provider)
    return provider


def server_interceptor(provider: TracerProvider) -> grpc.aio.ServerInterceptor:
    """Spans of incoming calls, without health checks and process-long streams."""
    from opentelemetry.instrumentation.grpc import aio_server_interceptor

    return aio_server_interceptor(tracer_provider=provider, filter_=_traced())  # type: ignore[no-any-return,no-untyped-call]


def client_interceptors(provider: TracerProvider) -> Sequence[grpc.aio.ClientInterceptor]:
    """Spans of outgoing calls, without health checks and process-long streams."""
    from opentelemetry.instrumentation.grpc import aio_client_interceptors

    return aio_client_interceptors(tracer_provider=provider, filter_=_traced())  # type: ignore[no-any-return,no-untyped-call]


def _traced() -> object:
    from opentelemetry.instrumentation.grpc import filters

    return filters.negate(filters.any_of(filters.health_check(), *(filters.method_name(name) for name in _LONG_STREAMS)))
