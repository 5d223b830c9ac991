"""A request is one trace from the client's context to the engine's attempt; tracing changes nothing and tells no secret."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
import pytest

from inferway.edge.v1 import inference_pb2 as pb
from inferway.engine.v1 import engine_pb2
from tests.contract.gateway.conftest import Mesh
from tests.harness.engine import running_engine
from tests.harness.eventually import eventually
from tests.harness.gateway_service import SECRET, RunningGateway, collect, credentials, request
from tests.harness.otlp_collector import ERROR, UNSET, OtlpCollector, SeenSpan
from tests.harness.session_engine import PlayedAttempt

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = (("traceparent", f"00-{TRACE}-{PARENT}-01"),)
CALL = "inferway.edge.v1.OpenAI/CreateChatCompletion"
GATEWAY_SPANS = (CALL, "chat", "queue wait", "attempt", "first token", "decode")
ENGINE_SPANS = ("engine attempt", "queue", "prefill", "decode")
MARKER = "marker-of-a-secret"


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    async with OtlpCollector() as collector:
        yield collector


def tree(spans: Iterable[SeenSpan]) -> set[tuple[str, str]]:
    """Every span with its parent, by service and name."""
    names = {span.span_id: f"{span.service.removeprefix('inferway-')}: {span.name}" for span in spans}
    return {(names[span.span_id], names.get(span.parent_id, span.parent_id)) for span in spans}


def only(spans: list[SeenSpan], name: str) -> SeenSpan:
    (span,) = [span for span in spans if span.name == name]
    return span


def has(*names: str, num: int = 1) -> Callable[[list[SeenSpan]], bool]:
    return lambda spans: all(sum(span.name == name for span in spans) >= num for name in names)


@contextlib.asynccontextmanager
async def real_engine(collector: OtlpCollector, mesh: Mesh) -> AsyncIterator[None]:
    """A replica with the deterministic runner, known to the router."""
    async with running_engine(mesh.home, otlp_endpoint=collector.endpoint, trace_sample_ratio=0.0) as (engine, _):
        mesh.router.replicas["real"] = f"127.0.0.1:{engine.port}"
        yield


async def test_request_is_one_trace_from_the_client_to_the_engine(collector: OtlpCollector, mesh: Mesh) -> None:
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint, trace_sample_ratio=0.0)
    async with real_engine(collector, mesh):
        await collect(gateway.chat(request(stream=True, max_tokens=7), metadata=CONTEXT))
    spans = await collector.until(lambda spans: len(spans) >= len(GATEWAY_SPANS) + len(ENGINE_SPANS))
    assert {span.trace_id for span in spans} == {TRACE}
    assert tree(spans) == {
        (f"gateway: {CALL}", PARENT),
        ("gateway: chat", f"gateway: {CALL}"),
        ("gateway: queue wait", "gateway: chat"),
        ("gateway: attempt", "gateway: chat"),
        ("gateway: first token", "gateway: attempt"),
        ("gateway: decode", "gateway: attempt"),
        ("engine: engine attempt", "gateway: attempt"),
        ("engine: queue", "engine: engine attempt"),
        ("engine: prefill", "engine: engine attempt"),
        ("engine: decode", "engine: engine attempt"),
    }
    assert {span.status for span in spans} == {UNSET}
    chat, attempt = only(spans, "chat").attributes, only(spans, "engine attempt").attributes
    assert (chat["gen_ai.operation.name"], chat["gen_ai.request.model"], chat["gen_ai.response.finish_reasons"]) == (
        "chat",
        "tiny",
        ["length"],
    )
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"]) == (5, 7)
    assert (attempt["gen_ai.usage.input_tokens"], attempt["gen_ai.usage.output_tokens"]) == (5, 7)
    (record,) = await gateway.records()
    assert (chat["inferway.charge"], chat["inferway.request"]) == (record.charge_id, record.request_id)


async def test_times_of_an_attempt_follow_each_other(collector: OtlpCollector, mesh: Mesh) -> None:
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint)
    async with real_engine(collector, mesh):
        await collect(gateway.chat(request(max_tokens=7), metadata=CONTEXT))
    spans = [span for span in await collector.until(has("engine attempt", "prefill")) if span.service == "inferway-engine"]
    whole, queue, prefill, decode = (only(spans, name) for name in ENGINE_SPANS)
    points = [queue.began_ns, queue.ended_ns, prefill.began_ns, prefill.ended_ns, decode.began_ns, decode.ended_ns, whole.ended_ns]
    slack_ns = 1_000_000  # Each point is turned into wall time by itself.
    assert all(earlier <= later + slack_ns for earlier, later in itertools.pairwise(points)), points
    assert abs(whole.began_ns - queue.began_ns) <= slack_ns


async def test_request_that_is_not_sampled_costs_the_engine_nothing(collector: OtlpCollector, mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint, trace_sample_ratio=0.0)
    asked = asyncio.create_task(collect(gateway.chat(request())))
    attempt = await engine.next_attempt()
    attempt.delta("one")
    attempt.finish()
    await asked
    assert attempt.start.traceparent == ""


async def test_lost_replica_is_a_failed_attempt_beside_the_one_that_goes_on(collector: OtlpCollector, mesh: Mesh) -> None:
    lost = await mesh.add_engine(play=None)
    await mesh.add_engine()
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint)
    asked = asyncio.create_task(collect(gateway.chat(request(), metadata=CONTEXT)))
    (await lost.next_attempt()).delta("one")
    await eventually(lambda: bool(mesh.router.first_tokens))
    await lost.kill()
    await asked
    spans = await collector.until(has(CALL, "chat"))
    attempts = sorted((span for span in spans if span.name == "attempt"), key=lambda span: span.began_ns)
    assert [(span.attributes["inferway.replica"], span.attributes.get("error.type"), span.status) for span in attempts] == [
        ("r1", "REPLICA_LOST", ERROR),
        ("r2", None, UNSET),
    ]
    assert (only(spans, "chat").status, only(spans, "chat").attributes["inferway.attempts"]) == (UNSET, 2)


@pytest.mark.parametrize(
    ("fields", "play", "code", "error_type", "status"),
    [
        ({"temperature": "hot"}, None, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", UNSET),
        ({"model": MARKER}, None, grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND", UNSET),
        ({}, "NON_FINITE_LOGITS", grpc.StatusCode.INTERNAL, "NON_FINITE_LOGITS", ERROR),
        ({}, "ENGINE_QUEUE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED, "ENGINE_QUEUE_FULL", UNSET),
        ({}, "MODEL_CORRUPT", grpc.StatusCode.DATA_LOSS, "MODEL_CORRUPT", ERROR),
    ],
)
async def test_refused_and_failed_requests_have_one_root_with_their_status(
    collector: OtlpCollector, mesh: Mesh, fields: dict[str, Any], play: str | None, code: grpc.StatusCode, error_type: str, status: int
) -> None:
    def fail(attempt: PlayedAttempt) -> None:
        attempt.fail(str(play), retryable=False)

    await mesh.add_engine(fail)
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint, log_level="ERROR")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await collect(gateway.chat(request(**fields), metadata=CONTEXT))
    assert caught.value.code() is code
    spans = await collector.until(has(CALL, "chat"))
    root, chat = only(spans, CALL), only(spans, "chat")
    assert (root.attributes["rpc.grpc.status_code"], root.attributes["error.type"], root.status) == (code.value[0], error_type, status)
    assert (chat.attributes["error.type"], chat.status) == (error_type, status)


async def test_cancelled_request_closes_every_span(collector: OtlpCollector, mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint)
    call = gateway.chat(request(stream=True), metadata=CONTEXT)
    attempt = await engine.next_attempt()
    attempt.delta("one")
    await call.read()
    call.cancel()
    await asyncio.wait_for(attempt.cancelled.wait(), 10)
    attempt.finish(engine_pb2.FINISH_REASON_CANCELLED)
    spans = await collector.until(has(*GATEWAY_SPANS))
    assert len(spans) == len(GATEWAY_SPANS)
    assert {span.name: span.attributes.get("error.type") for span in spans} == {
        CALL: "CANCELLED",
        "chat": None,
        "queue wait": None,
        "attempt": "CANCELLED",
        "first token": None,
        "decode": "CANCELLED",
    }
    assert {span.status for span in spans} == {UNSET}
    assert only(spans, "chat").attributes["gen_ai.response.finish_reasons"] == ["cancelled"]


async def test_native_request_cancelled_by_its_client_ends_well_in_its_spans(collector: OtlpCollector, mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint)
    call = gateway.inference.Generate(metadata=(*credentials(SECRET), *CONTEXT), timeout=20)
    message = pb.ChatMessage(role="user", content="hello")
    await call.write(pb.GenerateRequest(start=pb.GenerateStart(model="tiny", messages=[message])))
    attempt = await engine.next_attempt()
    attempt.delta("one")
    await call.read()
    await call.write(pb.GenerateRequest(cancel=pb.GenerateCancel()))
    await asyncio.wait_for(attempt.cancelled.wait(), 10)
    attempt.finish(engine_pb2.FINISH_REASON_CANCELLED)
    while await call.read() is not grpc.aio.EOF:
        pass
    spans = await collector.until(has("inferway.edge.v1.Inference/Generate", "chat"))
    root = only(spans, "inferway.edge.v1.Inference/Generate")
    assert (root.trace_id, root.parent_id, root.attributes["rpc.grpc.status_code"], root.status) == (TRACE, PARENT, 0, UNSET)
    assert only(spans, "chat").attributes["gen_ai.response.finish_reasons"] == ["cancelled"]


async def test_late_request_is_late_in_its_spans(collector: OtlpCollector, mesh: Mesh) -> None:
    await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint, request_deadline_s=2.0, cancel_timeout_s=0.1)
    with pytest.raises(grpc.aio.AioRpcError):
        await collect(gateway.chat(request(), metadata=CONTEXT))
    spans = await collector.until(has(CALL, "chat", "first token"))
    for name in (CALL, "chat"):
        assert (only(spans, name).attributes["error.type"], only(spans, name).status) == ("DEADLINE_EXCEEDED", ERROR)


async def test_hundreds_of_cancelled_requests_leave_one_root_each(collector: OtlpCollector, mesh: Mesh) -> None:
    num_requests = 300
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint)

    async def cancelled(index: int) -> None:
        call = gateway.chat(request(stream=True, max_tokens=100), metadata=(("traceparent", f"00-{index + 1:032x}-{PARENT}-01"),))
        with contextlib.suppress(grpc.aio.AioRpcError):
            if index % 3:
                await call.read()
        call.cancel()

    async with real_engine(collector, mesh):
        for first in range(0, num_requests, 20):
            await asyncio.gather(*(cancelled(index) for index in range(first, first + 20)))
        await gateway.service.drain(10.0)
    # A call that was cancelled before it left its client never was a request.
    spans = await collector.until(lambda spans: has(CALL, num=num_requests * 2 // 3)(spans) and is_whole(spans))
    roots = [span for span in spans if span.name == CALL]
    assert len({span.trace_id for span in roots}) == len(roots)


def is_whole(spans: list[SeenSpan]) -> bool:
    """Whether every span's parent has ended too."""
    known = {span.span_id for span in spans} | {PARENT}
    return all(span.parent_id in known for span in spans)


async def test_no_span_holds_a_key_a_prompt_or_an_answer(collector: OtlpCollector, mesh: Mesh) -> None:
    def play(attempt: PlayedAttempt) -> None:
        attempt.delta(f"{MARKER}-answer")
        attempt.finish()

    await mesh.add_engine(play)
    gateway = await mesh.start_gateway(otlp_endpoint=collector.endpoint, trace_sample_ratio=1.0, log_level="ERROR")
    said = {"messages": [{"role": "user", "content": MARKER}]}
    for fields in (said, {**said, "stream": True}, {"model": MARKER}, {MARKER: 1}, {"messages": [{"role": MARKER, "content": ""}]}):
        with contextlib.suppress(grpc.aio.AioRpcError):
            await collect(gateway.chat(request(**fields)))
    with contextlib.suppress(grpc.aio.AioRpcError):
        await collect(gateway.chat(request(), secret=f"ifw-{MARKER}"))
    spans = await collector.until(has(CALL, "chat", num=6))
    for secret in (MARKER, SECRET):
        assert not [span.name for span in spans if re.search(secret.encode(), span.raw)]


async def test_statuses_details_and_trailers_are_equal_with_and_without_tracing(collector: OtlpCollector, mesh: Mesh) -> None:
    def fail(attempt: PlayedAttempt) -> None:
        attempt.delta("one")
        attempt.fail("STEP_FAILED", retryable=False)

    await mesh.add_engine(fail)
    bodies: tuple[dict[str, Any], ...] = ({}, {"stream": True}, {"model": "none"}, {"n": 0}, {"messages": []}, {"max_tokens": 10**6})
    seen = []
    for endpoint in (None, collector.endpoint):
        gateway = await mesh.start_gateway(otlp_endpoint=endpoint, trace_sample_ratio=1.0, log_level="CRITICAL")
        seen.append([await outcome(gateway, fields) for fields in bodies])
    assert seen[0] == seen[1]


async def outcome(gateway: RunningGateway, fields: dict[str, Any]) -> tuple[object, ...]:
    """What a client gets, without what is new in every answer."""
    call = gateway.chat(request(**fields), metadata=(("x-request-id", "same"),))
    data = b""
    with contextlib.suppress(grpc.aio.AioRpcError):
        async for body in call:
            data += body.data
    fresh = re.compile(rb'"id":"[^"]*"|"created":\d+')
    return fresh.sub(b"", data), await call.code(), await call.details(), tuple(await call.trailing_metadata() or ())
