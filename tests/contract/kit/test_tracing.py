"""Spans of calls, through a real exporter to a collector: where they come from, how they end, and that they change nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.kit import tracing
from services.kit.channel import connect
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings
from tests.harness.kit_service import NAME, Echo, caller
from tests.harness.otlp_collector import ERROR, UNSET, OtlpCollector
from tests.harness.ports import free_port

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


@contextlib.asynccontextmanager
async def running(otlp_endpoint: str | None, sample_ratio: float = 1.0) -> AsyncIterator[tuple[Echo, grpc.aio.Channel]]:
    settings = ServerSettings(drain_timeout_s=5, log_level="ERROR", otlp_endpoint=otlp_endpoint, trace_sample_ratio=sample_ratio)
    service = Echo(settings, long_streams=("Talk",))
    task = asyncio.ensure_future(service.serve(new_registry()))
    started = asyncio.ensure_future(service.started.wait())
    await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
    assert service.state is not None
    async with connect(f"127.0.0.1:{service.state.port}") as channel:
        yield service, channel
    service.stop.set()
    await task


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    async with OtlpCollector() as collector:
        yield collector


async def ask(channel: grpc.aio.Channel, text: str, *traceparents: str, timeout_s: float = 10) -> str:
    metadata = tuple(("traceparent", value) for value in traceparents)
    answer: StringValue = await caller(channel, "Unary", "unary_unary")(StringValue(value=text), timeout=timeout_s, metadata=metadata)
    return answer.value


async def outcome(channel: grpc.aio.Channel, method: str, kind: str, text: str) -> tuple[object, ...]:
    """All that a caller gets: answers, code, details and trailers."""
    message = StringValue(value=text)
    call = caller(channel, method, kind)(message if kind.startswith("unary") else iter([message]), timeout=5)
    answers: list[str] = []
    with contextlib.suppress(grpc.aio.AioRpcError):
        if kind.endswith("unary"):
            answers.append((await call).value)
        else:
            answers += [answer.value async for answer in call]
    return answers, await call.code(), await call.details(), tuple(await call.trailing_metadata() or ())


async def test_call_continues_the_trace_of_its_caller(collector: OtlpCollector) -> None:
    async with running(collector.endpoint) as (_, channel):
        assert await ask(channel, "a", SAMPLED) == "A"
    (span,) = collector.spans
    assert (span.trace_id, span.parent_id, span.name, span.service) == (TRACE, PARENT, f"{NAME}/Unary", "inferway-echo")
    assert span.attributes == {"rpc.system": "grpc", "rpc.service": NAME, "rpc.method": "Unary", "rpc.grpc.status_code": 0}
    assert (span.status, span.began_ns <= span.ended_ns) == (UNSET, True)


@pytest.mark.parametrize("traceparents", [(), ("",), ("00-nonsense-01",), (f"00-{'0' * 32}-{PARENT}-01",)])
async def test_call_without_a_good_context_begins_a_trace(collector: OtlpCollector, traceparents: tuple[str, ...]) -> None:
    async with running(collector.endpoint) as (_, channel):
        await ask(channel, "a", *traceparents)
    (span,) = collector.spans
    assert span.parent_id == ""
    assert span.trace_id != TRACE


async def test_caller_and_ratio_decide_what_is_kept(collector: OtlpCollector) -> None:
    async with running(collector.endpoint, sample_ratio=0.0) as (_, channel):
        await ask(channel, "a", NOT_SAMPLED)
        await ask(channel, "b")
        await ask(channel, "c", SAMPLED)
    assert [span.trace_id for span in collector.spans] == [TRACE]


async def test_health_checks_and_long_streams_have_no_spans(collector: OtlpCollector) -> None:
    async with running(collector.endpoint) as (_, channel):
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert (await outcome(channel, "Talk", "stream_stream", "a"))[0] == ["A"]
    assert collector.spans == []


@pytest.mark.parametrize(
    ("method", "text", "code", "error_type", "status"),
    [
        ("Unary", "field", grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", UNSET),
        ("Stream", "field", grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", UNSET),
        ("Unary", "later", grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", UNSET),
        ("Stream", "a later", grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", UNSET),
        ("Unary", "bug", grpc.StatusCode.INTERNAL, "RuntimeError", ERROR),
        ("Stream", "a bug", grpc.StatusCode.INTERNAL, "RuntimeError", ERROR),
    ],
)
async def test_failed_call_has_its_status_and_reason_and_no_text(
    collector: OtlpCollector, method: str, text: str, code: grpc.StatusCode, error_type: str, status: int
) -> None:
    async with running(collector.endpoint) as (_, channel):
        kind = "unary_unary" if method == "Unary" else "unary_stream"
        assert (await outcome(channel, method, kind, text))[1] is code
    (span,) = collector.spans
    assert (span.attributes["rpc.grpc.status_code"], span.attributes["error.type"], span.status) == (code.value[0], error_type, status)
    assert b"hunter2" not in span.raw


async def test_cancelled_stream_ends_its_span_as_cancelled(collector: OtlpCollector) -> None:
    async with running(collector.endpoint) as (echo, channel):
        call = caller(channel, "Stream", "unary_stream")(StringValue(value="a wait"), timeout=30)
        assert (await call.read()).value == "A"
        call.cancel()
        await asyncio.wait_for(echo.cancelled.wait(), 5)
        (span,) = await collector.until(lambda spans: len(spans) == 1)
    assert (span.attributes["rpc.grpc.status_code"], span.attributes["error.type"], span.status) == (1, "CANCELLED", UNSET)


async def test_late_stream_ends_its_span_as_late(collector: OtlpCollector) -> None:
    async with running(collector.endpoint) as (_, channel):
        await channel.channel_ready()
        with pytest.raises(grpc.aio.AioRpcError):
            [_ async for _ in caller(channel, "Stream", "unary_stream")(StringValue(value="a wait"), timeout=1)]
        (span,) = await collector.until(lambda spans: len(spans) == 1)
    assert (span.attributes["rpc.grpc.status_code"], span.attributes["error.type"], span.status) == (4, "DEADLINE_EXCEEDED", ERROR)


async def test_many_cancelled_streams_leave_no_span_open(collector: OtlpCollector) -> None:
    num_calls = 200
    async with running(collector.endpoint) as (_, channel):
        stream = caller(channel, "Stream", "unary_stream")
        calls = [stream(StringValue(value="a " * (1 + index % 50) + "wait"), timeout=30) for index in range(num_calls)]
        await asyncio.gather(*(call.read() for call in calls))
        for call in calls:
            call.cancel()
        await collector.until(lambda spans: len(spans) == num_calls)
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    assert {span.attributes["rpc.grpc.status_code"] for span in collector.spans} == {1}


async def test_answers_errors_and_trailers_are_equal_with_and_without_tracing(collector: OtlpCollector) -> None:
    asked = [
        (method, kind, text)
        for method, kind in (("Unary", "unary_unary"), ("Stream", "unary_stream"), ("Talk", "stream_stream"))
        for text in ("fine", "field", "later", "bug")
    ]
    seen = []
    for endpoint in (None, collector.endpoint):
        async with running(endpoint) as (_, channel):
            seen.append([await outcome(channel, *one) for one in asked])
    assert seen[0] == seen[1]


async def test_collector_that_is_away_neither_delays_answers_nor_the_stop() -> None:
    async with asyncio.timeout(20), running(f"127.0.0.1:{free_port()}") as (_, channel):
        assert await ask(channel, "a", SAMPLED) == "A"


async def test_span_ends_with_its_block_and_is_the_parent_of_those_inside(collector: OtlpCollector) -> None:
    tracer = tracing.open_tracer("unit", f"http://{collector.endpoint}", 1.0)
    assert tracer is not None
    with tracing.active(tracer.start("root", SAMPLED, {})), tracing.span("outer", {"fact": 1}) as outer:
        with pytest.raises(KeyError), tracing.span("inner"):
            raise KeyError("the secret is hunter2")
        assert tracing.current() is outer
    outer.set({"late": 1})
    await asyncio.to_thread(tracer.close)
    spans = {span.name: span for span in collector.spans}
    assert spans["inner"].parent_id == spans["outer"].span_id
    assert spans["outer"].parent_id == spans["root"].span_id
    assert (spans["inner"].attributes, spans["inner"].status) == ({"error.type": "KeyError"}, ERROR)
    assert (spans["outer"].attributes, spans["outer"].status) == ({"fact": 1}, UNSET)
    assert b"hunter2" not in spans["inner"].raw
    assert tracing.current().traceparent == ""


async def test_span_outside_of_a_traced_call_is_nothing() -> None:
    with tracing.span("a", {"fact": 1}) as span:
        span.fail("INTERNAL", "BUG")
        assert (span.traceparent, tracing.current()) == ("", span)
    assert tracing.open_tracer("unit", None, 1.0) is None
