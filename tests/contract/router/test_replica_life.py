"""Who may get work while replicas and the registry come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from inferway.common.v1 import registry_pb2
from inferway.router.v1 import router_pb2
from services.router.replica_view import ReplicaView
from services.router.snapshot import ReplicaState
from tests.contract.router.conftest import Mesh, open_mesh
from tests.harness.etcd import EtcdServer
from tests.harness.router_service import DispatchClient
from tests.harness.scripted_engine import ScriptedEngine
from tests.harness.tcp_proxy import TcpProxy

LOST = router_pb2.DONE_OUTCOME_REPLICA_LOST
REPLICA_STATE_DRAINING = registry_pb2.REPLICA_STATE_DRAINING


@pytest.fixture
async def mesh_with_own_etcd(tmp_path: Path) -> AsyncIterator[Mesh]:
    etcd = EtcdServer(tmp_path / "etcd")
    await etcd.start()
    try:
        async with open_mesh(etcd) as mesh:
            yield mesh
    finally:
        etcd.kill()


async def picks(gateway: DispatchClient, num_wants: int) -> set[str]:
    """Replicas that serve so many short requests, one after the other."""
    found = set()
    for _ in range(num_wants):
        await gateway.want()
        grant = await gateway.grant()
        found.add(grant.replica_id)
        await gateway.done(grant.want_id)
    return found


async def test_replica_killed_is_filtered_at_once_while_its_key_lives(mesh: Mesh) -> None:
    await mesh.start_router()
    killed, _ = await mesh.engine("a"), await mesh.engine("b")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    assert await picks(gateway, 6) == {"a", "b"}
    await killed.kill()
    await mesh.wait_connected("b")
    assert await picks(gateway, 6) == {"b"}
    excluded = {row.replica_id: row.excluded_by for row in (await gateway.explain()).verdicts}
    assert excluded == {"a": "disconnected", "b": ""}


async def test_replica_killed_its_waiting_wants_move_to_the_other(mesh: Mesh) -> None:
    await mesh.start_router()
    killed = await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    first = await gateway.want()
    await gateway.grant()
    waiting = await gateway.want()
    await mesh.engine("b", max_num_sequences=1)
    assert (await gateway.grant()).want_id == waiting
    await killed.kill()
    await mesh.wait_connected("b")
    await gateway.done(first, LOST)
    again = await gateway.want(excluded_replica_ids=["a"])
    await gateway.done(waiting)
    grant = await gateway.grant()
    assert (grant.want_id, grant.replica_id) == (again, "b")


async def test_replica_lost_alone_holds_wants_until_its_successor_answers(mesh: Mesh) -> None:
    await mesh.start_router(no_replica_grace_s=3600.0)
    engine = await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    await gateway.want()
    await gateway.grant()
    await engine.kill()
    await mesh.wait_connected()
    held = await gateway.want()
    await engine.start()
    await mesh.register(engine)
    grant = await gateway.grant()
    assert (grant.want_id, grant.replica_id) == (held, "a")
    (replica,) = await gateway.replicas()
    assert replica.num_granted == 1, "the grant on the dead process must not count for its successor"


async def test_replica_restarted_is_not_used_before_it_registers_anew(mesh: Mesh) -> None:
    await mesh.start_router(no_replica_grace_s=0.3)
    engine = await mesh.engine("a")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    await engine.kill()
    await mesh.wait_connected()
    await engine.start()
    await gateway.want()
    assert (await gateway.reject()).reason == "NO_READY_REPLICA"
    await mesh.register(engine)
    await mesh.wait_connected("a")
    assert await picks(gateway, 1) == {"a"}


async def test_replica_port_taken_by_another_process_gets_no_work(mesh: Mesh) -> None:
    await mesh.start_router(no_replica_grace_s=0.3)
    stranger = ScriptedEngine("stranger")
    await stranger.start()
    mesh.stack.push_async_callback(stranger.kill)
    dead = ScriptedEngine("a")
    dead.listen_on(stranger)
    await mesh.register(dead)
    gateway = await mesh.gateway()
    await gateway.want()
    assert (await gateway.reject()).reason == "NO_READY_REPLICA"


async def test_replica_silent_is_taken_out_and_comes_back(mesh: Mesh) -> None:
    await mesh.start_router(max_load_age_s=0.3)
    silent = await mesh.engine("a", period_s=None)
    await mesh.engine("b", period_s=0.05)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    await mesh.router.until(lambda view: not connected(view, "a"))
    assert await picks(gateway, 1) == {"b"}
    silent.period_s = 0.05
    await mesh.wait_connected("a", "b")


@pytest.mark.parametrize("who_says_so", ["engine", "registry"])
async def test_replica_draining_gets_no_new_work(mesh: Mesh, who_says_so: str) -> None:
    await mesh.start_router()
    draining, _ = await mesh.engine("a"), await mesh.engine("b")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    if who_says_so == "engine":
        draining.report(draining=True)
        await mesh.router.until(lambda view: any(replica.load.draining for replica in view.replicas()))
    else:
        await mesh.register(draining, REPLICA_STATE_DRAINING)
        await mesh.router.until(lambda view: any(replica.facts.state is ReplicaState.DRAINING for replica in view.replicas()))
    assert await picks(gateway, 6) == {"b"}


async def test_replica_stuck_gets_no_work(mesh: Mesh) -> None:
    await mesh.start_router(max_heartbeat_age_s=10.0)
    stuck, _ = await mesh.engine("a"), await mesh.engine("b")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    stuck.report(heartbeat_age_s=11.0)
    await mesh.router.until(lambda view: any(replica.load.heartbeat_age_s > 10 for replica in view.replicas()))
    assert await picks(gateway, 4) == {"b"}


async def test_registry_killed_everybody_is_served_and_new_replicas_come_after(mesh_with_own_etcd: Mesh) -> None:
    mesh = mesh_with_own_etcd
    await mesh.start_router()
    killed, _ = await mesh.engine("a"), await mesh.engine("b")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    mesh.etcd.kill()
    assert await picks(gateway, 6) == {"a", "b"}
    await killed.kill()
    await mesh.wait_connected("b")
    assert await picks(gateway, 4) == {"b"}
    await mesh.etcd.start()
    await mesh.engine("c")
    await mesh.wait_connected("b", "c")
    assert await picks(gateway, 6) == {"b", "c"}


async def test_registry_history_compacted_while_the_router_was_cut_off(mesh: Mesh) -> None:
    proxy = TcpProxy(mesh.etcd.endpoint)
    await proxy.mend()
    mesh.stack.push_async_callback(proxy.cut)
    await mesh.start_router(etcd_endpoints=(proxy.endpoint,))
    leaving, _ = await mesh.engine("a"), await mesh.engine("b")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    await proxy.cut()
    await mesh.unregister(leaving)
    await leaving.kill()
    await mesh.engine("c")
    for number in range(100):
        await mesh.client.put("/elsewhere", str(number).encode())
    await mesh.client.compact((await mesh.client.status()).revision)
    await proxy.mend()
    await mesh.wait_connected("b", "c")
    await mesh.wait_known("b", "c")
    assert await picks(gateway, 6) == {"b", "c"}


async def test_registry_key_gone_live_replica_stays_until_its_time_is_up(mesh: Mesh) -> None:
    await mesh.start_router(unregistered_linger_s=2.0)
    engine = await mesh.engine("a")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    await mesh.unregister(engine)
    assert await picks(gateway, 1) == {"a"}
    await mesh.wait_known()
    await gateway.want()
    assert (await gateway.reject()).reason == "NO_READY_REPLICA"


async def test_registry_key_comes_back_streams_do_not_notice(mesh: Mesh) -> None:
    await mesh.start_router()
    engine, marker = await mesh.engine("a"), ScriptedEngine("marker")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    await mesh.unregister(engine)
    await mesh.register(engine)
    await mesh.register(marker)
    await mesh.wait_known("a", "marker")
    assert await picks(gateway, 1) == {"a"}
    assert engine.num_watches == 1


async def test_registry_key_gone_dead_replica_leaves_at_once(mesh: Mesh) -> None:
    await mesh.start_router(unregistered_linger_s=3600.0)
    engine = await mesh.engine("a")
    await mesh.gateway()
    await mesh.wait_connected("a")
    await engine.kill()
    await mesh.wait_connected()
    await mesh.unregister(engine)
    await mesh.wait_known()


def connected(view: ReplicaView, replica_id: str) -> bool:
    return any(replica.connected for replica in view.replicas() if replica.facts.replica_id == replica_id)
