"""Explain and ListReplicas show what the router decides from."""

from __future__ import annotations

import grpc
import pytest

from tests.contract.router.conftest import Mesh


async def test_explain_numbers_equal_the_decision(mesh: Mesh) -> None:
    router = await mesh.start_router(scorers=("queue=2.0", "kv_room=0.5"))
    busy, idle = await mesh.engine("a", max_num_sequences=10), await mesh.engine("b", max_num_sequences=10)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    busy.report(num_running=5, num_used_blocks=256)
    idle.report(num_running=1, num_used_blocks=512)
    await router.until(lambda view: {replica.load.num_running for replica in view.replicas()} == {1, 5})
    explained = await gateway.explain()
    rows = {row.replica_id: row for row in explained.verdicts}
    scores = {(row.replica_id, score.scorer): score.value for row in rows.values() for score in row.scores}
    assert scores == {
        ("a", "queue"): pytest.approx(0.5),
        ("a", "kv_room"): pytest.approx(0.75),
        ("b", "queue"): pytest.approx(0.9),
        ("b", "kv_room"): pytest.approx(0.5),
    }
    assert rows["a"].total == pytest.approx(2.0 * 0.5 + 0.5 * 0.75)
    assert rows["b"].total == pytest.approx(2.0 * 0.9 + 0.5 * 0.5)
    assert explained.picked_replica_id == "b"
    await gateway.want()
    assert (await gateway.grant()).replica_id == explained.picked_replica_id


async def test_explain_behind_a_queue_gives_its_position_and_reason(mesh: Mesh) -> None:
    await mesh.start_router()
    await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    for _ in range(3):
        await gateway.want()
    await gateway.grant()
    explained = await gateway.explain()
    assert (explained.picked_replica_id, explained.queue_position) == ("", 2)
    assert explained.reason == "no_room: 1 sequences"


async def test_explain_changes_nothing(mesh: Mesh) -> None:
    await mesh.start_router()
    await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    assert [(await gateway.explain()).picked_replica_id for _ in range(3)] == ["a"] * 3
    assert (await gateway.replicas())[0].num_granted == 0


async def test_explain_without_a_model_is_refused(mesh: Mesh) -> None:
    await mesh.start_router()
    gateway = await mesh.gateway()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await gateway.explain(model="")
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_list_replicas_shows_registry_engine_and_grants(mesh: Mesh) -> None:
    router = await mesh.start_router()
    engine = await mesh.engine("a")
    await mesh.engine("z", model_name="another-model")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "z")
    engine.report(num_running=3, num_waiting=1, num_used_blocks=24)
    await router.until(lambda view: any(replica.load.num_waiting for replica in view.replicas()))
    await gateway.want()
    await gateway.grant()
    other, view = await gateway.replicas()
    assert view.replica == engine.registration()
    assert (view.connected, view.num_granted, view.num_running, view.num_waiting, view.num_free_blocks) == (True, 1, 3, 1, 1000)
    assert 0 <= view.load_age_s < 60
    assert [row.replica.replica_id for row in await gateway.replicas("another-model")] == [other.replica.replica_id] == ["z"]
