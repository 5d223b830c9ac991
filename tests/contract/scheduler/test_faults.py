"""What the control plane does when a scheduler, a node or the registry goes away."""

import grpc

from inferway.scheduler.v1 import scheduler_pb2 as pb
from services.kit import keyspace
from services.kit.etcd import EtcdClient
from tests.harness.control_plane import CALL_S, READY, ControlPlane, Scheduler, eventually


async def leader(client: EtcdClient) -> tuple[str, int]:
    """Who leads, and since which revision."""
    kv = await client.get(keyspace.leader("scheduler"))
    return (kv.value.decode(), kv.create_revision) if kv else ("", 0)


async def until_leads(client: EtcdClient, scheduler_id: str) -> None:
    async def ask() -> str:
        return (await leader(client))[0]

    await eventually(ask, lambda found: found == scheduler_id)


async def test_kill_9_leader_the_other_scheduler_goes_on(plane: ControlPlane) -> None:
    client = EtcdClient([plane.etcd.endpoint])
    one, process = plane.scheduler_process(SCHEDULER_ID="one")
    await until_leads(client, "one")
    two = plane.scheduler(SCHEDULER_ID="two")
    plane.node()
    await one.deploy("tiny", 1)
    await one.until_ready("tiny-0")
    process.kill()
    await two.stub.Scale(pb.ScaleRequest(model="tiny", num_replicas=2), timeout=CALL_S, wait_for_ready=True)
    await until_leads(client, "two")
    await two.until_ready("tiny-0", "tiny-1")
    assert (len(plane.pids("tiny-0")), len(plane.pids("tiny-1"))) == (1, 1)
    placed = [sentence.split()[1] for sentence in await two.explain("tiny") if "placed on" in sentence]
    assert placed == ["tiny-0", "tiny-1"], "decisions of both leaders are kept"
    await client.close()


async def test_stopped_leader_hands_over_at_once(plane: ControlPlane) -> None:
    client = EtcdClient([plane.etcd.endpoint])
    one = plane.scheduler(SCHEDULER_ID="one", LEADER_TTL_S="600")
    await until_leads(client, "one")
    plane.scheduler(SCHEDULER_ID="two", LEADER_TTL_S="600")
    assert await one.service.stop() == 0
    await until_leads(client, "two")
    await client.close()


async def test_lost_node_its_replicas_are_placed_elsewhere(plane: ControlPlane) -> None:
    scheduler = plane.scheduler(NODE_GRACE_S="1")
    first = plane.node_process("a")
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    plane.node("b")
    await eventually(lambda: nodes(scheduler), lambda found: found == ["a", "b"])
    first.kill()
    await scheduler.until_ready("tiny-1")
    assert (await scheduler.assignments())["tiny-1"].assignment.node_id == "b"
    assert any("tiny-0 removed from a: node a is lost" in sentence for sentence in await scheduler.explain("tiny"))


async def test_etcd_away_longer_than_every_lease_and_grace_moves_nothing(plane: ControlPlane) -> None:
    scheduler, process = plane.scheduler_process(NODE_GRACE_S="1")
    plane.node("a")
    plane.node("b")
    await eventually(lambda: nodes(scheduler), lambda found: found == ["a", "b"])
    await scheduler.deploy("tiny", 2)
    before = await scheduler.until_ready("tiny-0", "tiny-1")
    plane.etcd.kill()
    await process.until_logged('"leads no more"')  # Its lease of 2 s is over, and so are those of nodes and replicas.
    assert await refused(scheduler)
    await plane.etcd.start()
    after = await scheduler.until_ready("tiny-0", "tiny-1")
    assert {name: each.address for name, each in after.items()} == {name: each.address for name, each in before.items()}
    assert (len(plane.pids("tiny-0")), len(plane.pids("tiny-1"))) == (1, 1)
    await scheduler.stub.Scale(pb.ScaleRequest(model="tiny", num_replicas=1), timeout=CALL_S)
    await scheduler.until(lambda found: len(found) == 1)


async def test_node_whose_lease_was_revoked_registers_again_and_keeps_its_replicas(plane: ControlPlane) -> None:
    client = EtcdClient([plane.etcd.endpoint])
    scheduler = plane.scheduler()
    plane.node("a")
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    node = await client.get(keyspace.node("a"))
    assert node is not None
    await client.revoke(node.lease)
    await eventually(lambda: client.get(keyspace.node("a")), lambda again: again is not None and again.lease != node.lease)
    await scheduler.until_ready("tiny-0")
    assert len(plane.pids("tiny-0")) == 1
    await client.close()


async def test_drained_node_gets_nothing_until_it_is_let_back(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node("a")
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    drained = await scheduler.stub.Drain(pb.DrainRequest(node_id="a", timeout_s=5), timeout=CALL_S)
    assert list(drained.replica_ids) == ["tiny-0"]
    await scheduler.until(lambda found: not found)
    status = await scheduler.status("tiny")
    assert status.problem == "1 replica has no place: a is drained"
    listed = await scheduler.stub.ListNodes(pb.ListNodesRequest(), timeout=CALL_S)
    assert list(listed.cordoned_node_ids) == ["a"]
    await scheduler.stub.Uncordon(pb.UncordonRequest(node_id="a"), timeout=CALL_S)
    found = await scheduler.until(lambda all_: len(all_) == 1 and all(each.state == READY for each in all_.values()))
    assert [each.assignment.node_id for each in found.values()] == ["a"]


async def nodes(scheduler: Scheduler) -> list[str]:
    return [node.node_id for node in (await scheduler.stub.ListNodes(pb.ListNodesRequest(), timeout=CALL_S)).nodes]


async def refused(scheduler: Scheduler) -> bool:
    try:
        await scheduler.assignments()
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.UNAVAILABLE
    return False
