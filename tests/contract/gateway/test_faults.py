"""Replicas and routers that go away: answers go on or end with an explicit error, never silently short, and everything is given back."""

import asyncio
import json
from typing import Any

import grpc
import pytest

from inferway.engine.v1 import engine_pb2
from inferway.metering.v1 import records_pb2
from inferway.router.v1 import router_pb2
from tests.contract.gateway.conftest import Mesh
from tests.harness.eventually import eventually
from tests.harness.gateway_service import RunningGateway, collect, events, refusal, request
from tests.harness.session_engine import PlayedAttempt, echo

WAIT_S = 10.0


def text_of(found: list[Any]) -> str:
    return "".join(choice["delta"].get("content", "") for event in found if isinstance(event, dict) for choice in event.get("choices", []))


async def read_until(call: Any, text: str) -> bytes:
    """Reads the stream until the text has come."""
    data = b""
    async with asyncio.timeout(WAIT_S):
        while text not in text_of(events(data)):
            data += (await call.read()).data
    return data


async def rest_of(call: Any) -> tuple[bytes, grpc.StatusCode]:
    data = b""
    try:
        async with asyncio.timeout(WAIT_S):
            while (body := await call.read()) is not grpc.aio.EOF:
                data += body.data
    except grpc.aio.AioRpcError:
        pass
    return data, await call.code()


async def test_replica_killed_in_mid_stream_is_resumed_on_another(mesh: Mesh) -> None:
    first, second = await mesh.add_engine(play=None), await mesh.add_engine(echo)
    gateway = await mesh.start_gateway()
    call = gateway.chat(request(stream=True, stream_options={"include_usage": True}, seed=1))
    attempt = await first.next_attempt()
    attempt.delta("one")
    data = await read_until(call, "one")
    await first.kill()
    rest, code = await rest_of(call)
    found = events(data + rest)
    assert (text_of(found), found[-1], code) == ("one two three", "[DONE]", grpc.StatusCode.OK)
    resumed = (await second.next_attempt()).start
    assert (len(resumed.delivered_token_ids), resumed.delivered_text_bytes, resumed.sampling.seed) == (1, 3, 1)
    (record,) = await gateway.records()
    assert (record.num_attempts, record.completion_tokens) == (2, found[-2]["usage"]["completion_tokens"]) == (2, 3)
    lost = mesh.router.wants[0].want_id
    assert await mesh.router.until_done(lost) == router_pb2.DONE_OUTCOME_REPLICA_LOST
    assert mesh.router.wants[1].excluded_replica_ids == ["r1"]


async def test_replica_killed_with_nobody_to_go_on_ends_with_an_error_event(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    call = gateway.chat(request(stream=True))
    attempt = await engine.next_attempt()
    attempt.delta("one")
    data = await read_until(call, "one")
    await engine.kill()
    rest, code = await rest_of(call)
    found = events(data + rest)
    assert "[DONE]" not in found
    assert found[-1]["error"]["code"] == "replica_lost"
    assert code is grpc.StatusCode.UNAVAILABLE
    (record,) = await gateway.records()
    assert record.outcome == records_pb2.REQUEST_OUTCOME_INTERRUPTED
    assert (record.prompt_tokens, record.completion_tokens, record.error_reason) == (5, 1, "REPLICA_LOST")


async def test_replica_killed_before_the_first_token_is_an_error_of_status_503(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    asked = asyncio.create_task(refusal(gateway.chat(request(stream=True))))
    await engine.next_attempt()
    await engine.kill()
    _, error, trailers = await asked
    assert (trailers["x-http-status"], error["code"]) == ("503", "no_ready_replica")
    (record,) = await gateway.records()
    assert (record.outcome, record.prompt_tokens) == (records_pb2.REQUEST_OUTCOME_FAILED, 0)


async def test_replica_that_cannot_be_reached_is_left_for_another(mesh: Mesh) -> None:
    dead = await mesh.add_engine()
    await dead.kill()
    await mesh.add_engine()
    gateway = await mesh.start_gateway()
    assert json.loads(await collect(gateway.chat(request())))["choices"][0]["message"]["content"] == "one two three"


async def test_replica_that_is_restarted_gets_a_new_session(mesh: Mesh) -> None:
    engine = await mesh.add_engine()
    gateway = await mesh.start_gateway()
    await collect(gateway.chat(request()))
    await engine.kill()
    await eventually(lambda: gateway.service.num_sessions == 0)
    await engine.start()
    await collect(gateway.chat(request()))
    assert engine.num_sessions == 2


async def test_end_of_a_session_is_not_logged_as_news_of_the_request_that_opened_it(mesh: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    engine = await mesh.add_engine()
    gateway = await mesh.start_gateway()
    await collect(gateway.chat(request()))
    await engine.kill()
    await eventually(lambda: gateway.service.num_sessions == 0)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "session with a replica ended" in line]
    assert len(lines) == 1
    assert "request" not in lines[0]


async def test_requests_share_one_session_per_replica(gateway: RunningGateway, mesh: Mesh) -> None:
    await asyncio.gather(*(collect(gateway.chat(request())) for _ in range(20)))
    assert mesh.engine.num_sessions == 1
    assert len(mesh.router.hellos) == 1
    assert len({want.want_id for want in mesh.router.wants}) == 20
    for want in mesh.router.wants:
        assert await mesh.router.until_done(want.want_id) == router_pb2.DONE_OUTCOME_FINISHED


async def test_failure_of_one_request_leaves_the_others_of_its_session_alone(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    calls = [asyncio.create_task(collect(gateway.chat(request(stream=True)))) for _ in range(2)]
    bad, good = await engine.next_attempt(), await engine.next_attempt()
    bad.fail("NON_FINITE_LOGITS", retryable=False)
    echo(good)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AioRpcError", "bytes"]


@pytest.mark.parametrize("when", ["before the first token", "after it"])
async def test_client_that_goes_away_stops_the_engine_and_is_billed(mesh: Mesh, when: str) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    call = gateway.chat(request(stream=True))
    attempt = await engine.next_attempt()
    if when == "after it":
        attempt.delta("x")
        await read_until(call, "x")
    call.cancel()
    async with asyncio.timeout(WAIT_S):
        await attempt.cancelled.wait()
    made = 7 if when == "after it" else 0
    attempt.finish(engine_pb2.FINISH_REASON_CANCELLED, output_tokens=made)
    assert await mesh.router.until_done(attempt.start.attempt_id) == router_pb2.DONE_OUTCOME_CANCELLED
    (record,) = await gateway.records()
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (records_pb2.REQUEST_OUTCOME_CANCELLED, 5, made)


async def test_client_that_stopped_reading_and_goes_away_stops_the_engine(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    call = gateway.chat(request(stream=True))
    attempt = await engine.next_attempt()
    attempt.delta("x")
    await read_until(call, "x")
    for _ in range(100):
        attempt.delta("y" * 50_000)
    call.cancel()
    async with asyncio.timeout(WAIT_S):
        await attempt.cancelled.wait()


async def test_client_that_goes_away_from_the_queue_takes_its_want_along(gateway: RunningGateway, mesh: Mesh) -> None:
    mesh.router.silent = True
    call = gateway.chat(request())
    reading = asyncio.create_task(collect(call))
    want = await mesh.router.until_wants(1)
    call.cancel()
    assert await mesh.router.until_done(want.want_id) == router_pb2.DONE_OUTCOME_CANCELLED
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_router_that_restarts_is_asked_again_and_told_what_is_in_use(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    running = asyncio.create_task(collect(gateway.chat(request(stream=True, max_tokens=9))))
    attempt = await engine.next_attempt()
    mesh.router.silent = True
    waiting = asyncio.create_task(collect(gateway.chat(request())))
    await mesh.router.until_wants(2)
    await mesh.router.kill()
    attempt.delta("still")
    mesh.router.silent = False
    await mesh.router.start()
    hello = await mesh.router.until_hellos(2)
    assert [(held.want_id, held.replica_id, held.model, held.reserved_tokens) for held in hello.held_grants] == [
        (attempt.start.attempt_id, "r1", "tiny", 14)
    ]
    second: PlayedAttempt = await engine.next_attempt()
    assert second.start.attempt_id == mesh.router.wants[1].want_id == mesh.router.wants[2].want_id
    for played in (attempt, second):
        played.delta("!")
        played.finish()
    assert text_of(events(await running)) == "still!"
    assert json.loads(await waiting)["choices"][0]["message"]["content"] == "!"
    for played in (attempt, second):
        assert await mesh.router.until_done(played.start.attempt_id) == router_pb2.DONE_OUTCOME_FINISHED


async def test_router_that_stays_away_fails_what_waits_and_leaves_streams_alone(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway(router_away_s=0.3)
    running = asyncio.create_task(collect(gateway.chat(request(stream=True))))
    attempt = await engine.next_attempt()
    mesh.router.silent = True
    waiting = asyncio.create_task(refusal(gateway.chat(request())))
    await mesh.router.until_wants(2)
    await mesh.router.kill()
    _, error, trailers = await waiting
    assert (trailers["x-http-status"], error["code"], trailers["retry-after"]) == ("503", "router_unavailable", "1")
    _, error, _ = await refusal(gateway.chat(request()))
    assert error["code"] == "router_unavailable"
    attempt.delta("goes on")
    attempt.finish()
    assert text_of(events(await running)) == "goes on"


async def test_drain_lets_running_work_end_and_tells_new_work_to_go_elsewhere(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway()
    running = asyncio.create_task(collect(gateway.chat(request(stream=True))))
    attempt = await engine.next_attempt()
    gateway.stop()
    await eventually(lambda: gateway.service.draining)
    _, error, trailers = await refusal(gateway.chat(request()))
    assert (trailers["x-http-status"], error["code"]) == ("503", "draining")
    echo(attempt)
    assert events(await running)[-1] == "[DONE]"


async def test_drain_that_runs_out_of_time_ends_streams_with_an_error_event(mesh: Mesh) -> None:
    engine = await mesh.add_engine(play=None)
    gateway = await mesh.start_gateway(drain_timeout_s=0.1)
    call = gateway.chat(request(stream=True))
    attempt = await engine.next_attempt()
    attempt.delta("x")
    data = await read_until(call, "x")
    gateway.stop()
    rest, _ = await rest_of(call)
    assert events(data + rest)[-1]["error"]["code"] == "draining"


async def test_full_outbox_takes_no_paid_work(mesh: Mesh) -> None:
    await mesh.add_engine()
    gateway = await mesh.start_gateway(usage_outbox_max_bytes=2000)
    outcomes = []
    for _ in range(30):
        call = gateway.chat(request())
        try:
            await collect(call)
            outcomes.append("200")
        except grpc.aio.AioRpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            outcomes.append(f"{trailers['x-http-status']} {json.loads(trailers['x-openai-error'])['error']['code']}")
    assert set(outcomes) == {"200", "429 outbox_full"}
    assert outcomes == sorted(outcomes)
    assert len(await gateway.records()) == outcomes.count("200")
