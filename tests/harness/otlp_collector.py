"""An OTLP collector in this process that keeps every span for the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

WAIT_S = 15.0
UNSET, ERROR = trace_pb2.Status.STATUS_CODE_UNSET, trace_pb2.Status.STATUS_CODE_ERROR


@dataclass(frozen=True)
class SeenSpan:
    """One finished span."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    status: int
    began_ns: int
    ended_ns: int
    raw: bytes
    """As it came over the wire, to search it for what must not be in it."""


class OtlpCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """`async with`, or `start` and `stop`; `endpoint` is what services are told."""

    def __init__(self) -> None:
        self.spans: list[SeenSpan] = []
        self._changed = asyncio.Event()
        self._server = grpc.aio.server()

    async def __aenter__(self) -> OtlpCollector:
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)

    async def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: Context
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """See TraceService."""
        self.spans += _spans(request)
        self._changed.set()
        return trace_service_pb2.ExportTraceServiceResponse()

    async def until(self, condition: Callable[[list[SeenSpan]], bool]) -> list[SeenSpan]:
        """Waits until the spans so far meet the condition."""
        async with asyncio.timeout(WAIT_S):
            while not condition(self.spans):
                self._changed.clear()
                await self._changed.wait()
        return self.spans

    async def until_named(self, *names: str) -> dict[str, SeenSpan]:
        """Waits for spans of these names; returns the spans by name, and fails when two share one of them."""
        spans = await self.until(lambda spans: {span.name for span in spans} >= set(names))
        found = [span.name for span in spans]
        assert all(found.count(name) == 1 for name in names), found
        return {span.name: span for span in spans}


def _spans(request: trace_service_pb2.ExportTraceServiceRequest) -> Iterator[SeenSpan]:
    for resource in request.resource_spans:
        service = _plain(resource.resource.attributes).get("service.name", "")
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield SeenSpan(
                service=service,
                name=span.name,
                trace_id=span.trace_id.hex(),
                span_id=span.span_id.hex(),
                parent_id=span.parent_span_id.hex(),
                attributes=_plain(span.attributes),
                status=span.status.code,
                began_ns=span.start_time_unix_nano,
                ended_ns=span.end_time_unix_nano,
                raw=span.SerializeToString(),
            )


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
