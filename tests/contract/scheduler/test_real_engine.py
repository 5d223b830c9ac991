"""The replica that the node agent runs in production, with the runner that needs no weights."""

from inferway.common.v1 import registry_pb2
from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from inferway.scheduler.v1 import scheduler_pb2 as pb
from services.engine.node.config import NodeConfig
from services.kit.channel import connect
from tests.harness.control_plane import CALL_S, ControlPlane
from tests.harness.engine import GatewayStub

DRAINING = registry_pb2.REPLICA_PROCESS_PHASE_DRAINING
REAL = ",".join(NodeConfig().replica_command)


async def test_engine_replicas_serve_their_slot_scale_down_and_end(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    node = plane.node(REPLICA_COMMAND=REAL, KAFKA_BOOTSTRAP="")
    await scheduler.deploy("tiny", 2, runner="sim", max_num_sequences="3")
    found = await scheduler.until_ready("tiny-0", "tiny-1")
    async with connect(found["tiny-1"].address) as channel:
        info = await engine_pb2_grpc.EngineStub(channel).GetInfo(engine_pb2.GetInfoRequest(), timeout=CALL_S)
    assert (info.replica_id, info.model) == ("tiny-1", "tiny")
    await scheduler.stub.Scale(pb.ScaleRequest(model="tiny", num_replicas=1), timeout=CALL_S)
    await scheduler.until_ready("tiny-0")
    assert await node.stop() == 0


async def test_engine_setting_out_of_range_is_told_in_the_deployment(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node(REPLICA_COMMAND=REAL)
    await scheduler.deploy("tiny", 1, runner="sim", block_size="0")
    await scheduler.until_status("tiny", lambda each: "block_size must be at least 1" in each.problem)


async def test_engine_scale_down_lets_running_work_finish_and_takes_no_more(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node(REPLICA_COMMAND=REAL, KAFKA_BOOTSTRAP="")
    await scheduler.deploy("tiny", 1, drain_timeout_s=600, runner="sim", sim_step_ms="20")
    found = await scheduler.until_ready("tiny-0")
    async with connect(found["tiny-0"].address) as channel:
        gateway = await GatewayStub(channel).hello()
        await gateway.start("long", max_output_tokens=150)
        await gateway.read()
        await scheduler.stub.Scale(pb.ScaleRequest(model="tiny", num_replicas=0), timeout=CALL_S)
        await scheduler.until(lambda all_: all_["tiny-0"].process.phase == DRAINING)
        late = await gateway.run("late")
        assert late.failed is not None and (late.failed.reason, late.failed.retryable) == ("DRAINING", True)
        (long,) = await gateway.until_end("long")
        assert long.finished is not None and len(long.token_ids) == 150
    await scheduler.until(lambda all_: not all_)


async def test_engine_drain_limit_ends_running_work_with_an_explicit_error(plane: ControlPlane) -> None:
    scheduler = plane.scheduler()
    plane.node(REPLICA_COMMAND=REAL, KAFKA_BOOTSTRAP="")
    await scheduler.deploy("tiny", 1, drain_timeout_s=1, runner="sim", sim_step_ms="100")
    found = await scheduler.until_ready("tiny-0")
    async with connect(found["tiny-0"].address) as channel:
        gateway = await GatewayStub(channel).hello()
        await gateway.start("long", max_output_tokens=400)
        await gateway.read()
        await scheduler.stub.Scale(pb.ScaleRequest(model="tiny", num_replicas=0), timeout=CALL_S)
        (long,) = await gateway.until_end("long")
        assert long.failed is not None and long.failed.reason == "DRAINING"
    await scheduler.until(lambda all_: not all_)
