"""Replicas that go away by order: running work ends word for word, new work goes elsewhere; with none left the refusal is prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cli.clients import ControlPlane
from inferway.common.v1 import registry_pb2
from services.kit.channel import connect
from tests.harness.bill import Bill
from tests.harness.eventually import eventually
from tests.harness.measure import at_rest, num_running
from tests.harness.mesh import MODEL, Mesh
from tests.harness.rest import Rest, error_of
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

NUM_STREAMS = 8
LONG = 150
ENDLESS = 4000


@pytest.fixture
async def plane(mesh: Mesh) -> AsyncIterator[ControlPlane]:
    """Puts two replicas back, whatever happened."""
    async with connect(f"127.0.0.1:{mesh.ports.scheduler_grpc}") as channel:
        plane = ControlPlane(channel)
        yield plane
        await plane.deploy(registry_pb2.Deployment(model=MODEL, num_replicas=2))


async def test_scale_down_under_load_drains_first(mesh: Mesh, plane: ControlPlane) -> None:
    async with Clients(mesh) as clients:
        reference = (await clients.ask_whole("hi", LONG)).text
        streams = [asyncio.ensure_future(clients.ask_stream("hi", LONG)) for _ in range(NUM_STREAMS)]

        async def all_run() -> bool:
            return await num_running(mesh) == NUM_STREAMS

        await eventually(all_run)
        await plane.scale(MODEL, 1)
        new = [await clients.ask_whole("new", 2)]
        while not all(stream.done() for stream in streams):
            new.append(await clients.ask_grpc("new", 2))
        told = [stream.result() for stream in streams]
    assert [one.failure for one in [*told, *new] if one.failure] == []
    assert {one.text for one in told} == {reference}
    await eventually(lambda: len(mesh.replicas()) == 1)
    await Bill(mesh).until_equal([*told, *new])
    # Drained, not resumed: each stream ended where it began.
    rows = await Bill(mesh).until_rows([one.completion_id for one in told])
    assert {len(row.attempts) for row in rows} == {1}


async def test_drain_that_runs_out_of_time_ends_work_with_an_explicit_error(mesh: Mesh, plane: ControlPlane) -> None:
    """Nobody else could go on. The limit is the one that was set last, long after the replica was placed."""
    await plane.deploy(registry_pb2.Deployment(model=MODEL, num_replicas=1, drain_timeout_s=1))
    await at_rest(mesh, num_replicas=1)
    async with Clients(mesh) as clients:
        works = [asyncio.ensure_future(ask("hi", ENDLESS)) for ask in clients.surfaces]

        async def all_run() -> bool:
            return await num_running(mesh) == len(works)

        await eventually(all_run)
        await plane.scale(MODEL, 0)
        told = await asyncio.gather(*works)
    assert [("silently" in one.failure, "before the answer was complete" in one.failure) for one in told] == [(False, True)] * 3
    streamed = [one for one in told if one.completion_id]
    assert len(streamed) == 2 and all(one.text for one in streamed)
    for row in await Bill(mesh).until_rows([one.completion_id for one in streamed]):
        assert (row.outcome, row.error_reason) == ("interrupted", "DRAINING")
        assert row.completion_tokens == row.attempts[0].output_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_no_replica_at_all_is_a_prompt_503_with_the_time_to_come_back(mesh: Mesh, plane: ControlPlane, stream: bool) -> None:
    await plane.scale(MODEL, 0)
    await eventually(lambda: not mesh.replicas())
    async with Rest(mesh) as rest, Clients(mesh) as clients:
        answers = await asyncio.gather(*(rest.chat(stream=stream) for _ in range(6)))
        for answer in answers:
            assert error_of(answer, 503)["code"] == "no_ready_replica"
            assert int(answer.headers["retry-after"]) >= 1
        assert (await clients.ask_grpc("hi", 1)).failure.startswith("UNAVAILABLE")
        assert (await rest.http.get("/v1/models")).json()["data"], "what is deployed is listed, ready or not"
