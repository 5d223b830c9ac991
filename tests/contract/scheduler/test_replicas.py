"""Scheduler, node agent and stand-in replicas as real processes: from a deployment to replicas and back."""

import os
import signal

from inferway.common.v1 import registry_pb2
from inferway.scheduler.v1 import scheduler_pb2 as pb
from tests.harness.control_plane import CALL_S, READY, RUNNING, ControlPlane
from tests.harness.pids import is_alive, until_gone

BACKING_OFF = registry_pb2.REPLICA_PROCESS_PHASE_BACKING_OFF


async def test_deploy_two_replicas_become_ready_and_are_explained(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node()
    stored = await scheduler.deploy("tiny", 2)
    assert (stored.generation, stored.num_replicas) == (1, 2)
    found = await scheduler.until_ready("tiny-0", "tiny-1")
    assert all(each.process.phase == registry_pb2.REPLICA_PROCESS_PHASE_RUNNING for each in found.values())
    assert len({each.address for each in found.values()}) == 2
    status = await scheduler.status("tiny")
    assert (status.num_ready, status.num_starting, status.problem) == (2, 0, "")
    assert any("tiny-0 placed on a" in sentence for sentence in await scheduler.explain("tiny"))
    nodes = (await scheduler.stub.ListNodes(pb.ListNodesRequest(), timeout=CALL_S)).nodes
    assert [(node.node_id, node.cached_models[0].partition("@")[0]) for node in nodes] == [("a", "tiny")]


async def test_kill_9_replica_is_started_again_in_its_slot(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node()
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    os.kill(plane.pids("tiny-0")[-1], signal.SIGKILL)
    found = await scheduler.until(
        lambda all_: "tiny-0" in all_ and all_["tiny-0"].process.num_restarts == 1 and all_["tiny-0"].state == READY
    )
    assert found["tiny-0"].process.last_exit.startswith("was killed by SIGKILL")


async def test_hung_replica_is_killed_and_started_again(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node()
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    hung = plane.pids("tiny-0")[-1]
    os.kill(hung, signal.SIGSTOP)
    found = await scheduler.until(lambda all_: all_["tiny-0"].process.num_restarts == 1 and all_["tiny-0"].state == READY)
    assert found["tiny-0"].process.last_exit == "was not healthy for 2 s"
    assert not is_alive(hung)


async def test_scale_down_drains_before_the_replica_goes(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node()
    await scheduler.deploy("tiny", 2, drain_timeout_s=600, script="busy")
    await scheduler.until_ready("tiny-0", "tiny-1")
    pid = plane.pids("tiny-1")[-1]
    await scheduler.stub.Scale(pb.ScaleRequest(model="tiny", num_replicas=1), timeout=CALL_S)
    found = await scheduler.until(lambda all_: all_["tiny-1"].state == registry_pb2.REPLICA_STATE_DRAINING)
    assert found["tiny-1"].assignment.draining
    assert is_alive(pid)
    (plane.home / "finish-tiny-1").touch()
    await scheduler.until_ready("tiny-0")
    await until_gone(pid)
    assert not (plane.home / "told-to-end-tiny-1").exists()


async def test_drain_deadline_ends_the_work_explicitly(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node()
    await scheduler.deploy("tiny", 1, drain_timeout_s=1, script="busy")
    await scheduler.until_ready("tiny-0")
    await scheduler.stub.Undeploy(pb.UndeployRequest(model="tiny"), timeout=CALL_S)
    await scheduler.until(lambda all_: not all_)
    assert (plane.home / "told-to-end-tiny-0").exists()


async def test_drain_one_replica_starts_another(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node()
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    response = await scheduler.stub.Drain(pb.DrainRequest(replica_id="tiny-0", timeout_s=5), timeout=CALL_S)
    assert list(response.replica_ids) == ["tiny-0"]
    await scheduler.until_ready("tiny-1")


async def test_replica_that_cannot_start_is_told_and_not_started_in_a_hot_loop(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node()
    await scheduler.deploy("tiny", 1, no_such_setting="1")
    status = await scheduler.until_status("tiny", lambda each: "ended 2 times" in each.problem)
    assert "INFERWAY_ENGINE_NO_SUCH_SETTING: unknown setting" in status.problem
    assert "unknown setting" in (await scheduler.explain("tiny"))[-1]
    found = await scheduler.until(lambda all_: all_["tiny-0"].process.phase == BACKING_OFF)
    assert found["tiny-0"].process.num_restarts <= 3
    await scheduler.deploy("tiny", 1)
    await scheduler.until(lambda all_: len(all_) == 1 and all(each.state == READY for each in all_.values()))
    assert (await scheduler.status("tiny")).problem == ""


async def test_model_that_no_node_has_is_a_stated_problem(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node()
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    await scheduler.deploy("huge", 1)
    status = await scheduler.status("huge")
    assert status.problem == "1 replica has no place: no node has huge in its model store; run: inferway model import huge"


async def test_kill_9_node_agent_takes_its_replicas_along_and_starts_them_again(plane: ControlPlane) -> None:
    scheduler = plane.scheduler(NODE_GRACE_S="60")
    agent = plane.node_process()
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    orphan = plane.pids("tiny-0")[-1]
    agent.kill()
    await until_gone(orphan)
    plane.node()
    await scheduler.until(lambda found: plane.pids("tiny-0")[-1] != orphan and found["tiny-0"].process.phase == RUNNING)


async def test_stopped_node_agent_ends_its_replicas_first(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    agent = plane.node()
    await scheduler.deploy("tiny", 1)
    await scheduler.until_ready("tiny-0")
    pid = plane.pids("tiny-0")[-1]
    assert await agent.stop() == 0
    assert not is_alive(pid)
