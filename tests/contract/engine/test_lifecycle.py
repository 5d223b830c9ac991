"""A replica from start to drain: health, load, drain, limits, faults of the runner, registry and process."""

import asyncio
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inferway.common.v1 import registry_pb2
from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from inferway.metering.v1 import records_pb2
from services.kit import keyspace, status
from services.kit.channel import connect
from services.kit.etcd import EtcdClient
from services.kit.model_store import ModelStore
from tests.harness.engine import TIMEOUT_S, GatewayStub, Running, running_engine, wait_health, wait_load
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually
from tests.harness.gate import start_at_gate
from tests.harness.ports import free_port
from tests.harness.replica_process import replica_environ
from tests.harness.tiny_model import MAX_CONTEXT_TOKENS, NAME, write_tiny_model


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_engine(tmp_path, max_num_sequences=2, max_num_waiting=1, heartbeat_bound_s=0.3, metrics_port=0) as running:
        yield running


def stub(running: Running) -> engine_pb2_grpc.EngineStub:
    return engine_pb2_grpc.EngineStub(running[1])


async def test_info_says_what_the_replica_is(running: Running) -> None:
    info = await stub(running).GetInfo(engine_pb2.GetInfoRequest(), timeout=5)
    version = ModelStore(Path(running[0].config.home)).get(NAME)
    assert (info.model, info.model_version, info.vocab_size) == (NAME, version.version, version.vocab_size)
    assert (info.max_context_tokens, info.block_size, info.num_blocks) == (MAX_CONTEXT_TOKENS, 4, 256)
    assert info.runner.startswith("sim: ")
    assert info.incarnation
    assert info.replica_id


async def test_probe_leaves_no_trace_in_counts_and_records(running: Running) -> None:
    load = await wait_load(running[1], num_running=0)
    assert (load.output_tokens_total, load.prompt_tokens_total, load.num_used_blocks) == (0, 0, 0)
    assert await running[0].records() == []
    assert running[0].gate.num_sequences == [1]


async def test_watch_load_tells_at_once_after_changes_and_without_one(running: Running, gateway: GatewayStub) -> None:
    watch = stub(running).WatchLoad(engine_pb2.WatchLoadRequest(), timeout=TIMEOUT_S)
    first, second = await watch.read(), await watch.read()
    assert (first.num_blocks, first.max_num_sequences, first.draining) == (256, 2, False)
    assert (second.num_running, second.num_used_blocks) == (0, 0)
    running[0].gate.shut()
    await gateway.start("a", max_output_tokens=10)
    running[0].gate.allow()
    while (load := await watch.read()).output_tokens_total == 0:
        pass
    assert (load.num_running, load.num_used_blocks, load.output_tokens_total, load.prompt_tokens_total) == (1, 1, 1, 3)
    running[0].gate.open()
    await gateway.until_end("a")
    while (load := await watch.read()).num_running:
        pass
    assert (load.num_used_blocks, load.output_tokens_total, load.num_cached_blocks) == (0, 10, 3)
    await gateway.run("again", max_output_tokens=10)
    while (load := await watch.read()).output_tokens_total < 20:
        pass
    assert (load.prompt_tokens_total, load.cached_prompt_tokens_total) == (6, 2)
    watch.cancel()


async def test_waiting_room_full_is_a_typed_refusal(running: Running, gateway: GatewayStub) -> None:
    engine, channel = running
    await start_at_gate(engine, gateway, "a")
    for name in ("b", "c", "d"):
        await gateway.start(name)
    await wait_load(channel, num_waiting=3)
    engine.gate.allow(3)
    (refused,) = await gateway.until_end("d")
    assert refused.failed is not None
    assert (refused.failed.reason, refused.failed.retryable) == ("ENGINE_QUEUE_FULL", True)
    engine.gate.open()
    assert all(heard.finished for heard in await gateway.until_end("a", "b", "c"))
    assert {record.attempt_id for record in await engine.records()} == {"a", "b", "c"}


async def test_drain_finishes_running_work_and_refuses_new(running: Running, gateway: GatewayStub) -> None:
    engine, channel = running
    engine.gate.shut()
    await gateway.start("old")
    engine.gate.allow()
    await gateway.read()
    drain = asyncio.ensure_future(stub(running).Drain(engine_pb2.DrainRequest(timeout_s=20), timeout=25))
    await wait_load(channel, draining=1)
    await wait_health(channel, serving=False)
    new = await gateway.run("new")
    assert new.failed is not None
    assert (new.failed.reason, new.failed.retryable) == ("DRAINING", True)
    engine.gate.open()
    (old,) = await gateway.until_end("old")
    assert old.finished is not None
    assert (await drain).num_aborted == 0


async def test_drain_out_of_time_ends_with_an_explicit_error(running: Running, gateway: GatewayStub) -> None:
    engine, _ = running
    engine.gate.shut()
    await gateway.start("a", max_output_tokens=300)
    engine.gate.allow(3)
    while len(gateway.heard["a"].token_ids if gateway.heard else []) < 3:
        await gateway.read()
    drain = asyncio.ensure_future(stub(running).Drain(engine_pb2.DrainRequest(timeout_s=0), timeout=25))
    await wait_load(running[1], draining=1)
    engine.gate.allow()
    (heard,) = await gateway.until_end("a")
    assert heard.failed is not None
    assert (heard.failed.reason, heard.failed.retryable) == ("DRAINING", True)
    assert heard.failed.counts.output_tokens == len(heard.token_ids)
    assert (await drain).num_aborted == 1
    (record,) = await engine.records()
    assert (record.outcome, record.output_tokens) == (records_pb2.ATTEMPT_OUTCOME_FAILED, len(heard.token_ids))


async def test_stop_keeps_streaming_until_the_work_is_done_then_ends_sessions(running: Running, gateway: GatewayStub) -> None:
    engine, channel = running
    engine.gate.shut()
    await gateway.start("a")
    engine.gate.allow()
    await gateway.read()
    engine.stop.set()
    await wait_health(channel, serving=False)
    engine.gate.open()
    (heard,) = await gateway.until_end("a")
    assert heard.finished is not None
    assert await gateway.read() is None


async def test_hung_step_is_not_healthy_and_comes_back(running: Running, gateway: GatewayStub) -> None:
    engine, channel = running
    engine.gate.shut()
    await gateway.start("a")
    await wait_health(channel, serving=False)
    assert (await wait_load(channel, draining=0)).heartbeat_age_s > 0.3
    engine.gate.open()
    (heard,) = await gateway.until_end("a")
    assert heard.finished is not None
    await wait_health(channel, serving=True)


async def test_idle_replica_stays_healthy_beyond_the_heartbeat_bound(running: Running) -> None:
    load = None
    watch = stub(running).WatchLoad(engine_pb2.WatchLoadRequest(), timeout=TIMEOUT_S)
    for _ in range(3):
        load = await watch.read()
        assert load.heartbeat_age_s < 5
    watch.cancel()
    await wait_health(running[1], serving=True)


async def test_method_that_is_not_served_says_so(running: Running) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub(running).Embed(engine_pb2.EmbedRequest(), timeout=5)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert status.from_rpc_error(caught.value).reason == "UNIMPLEMENTED"


async def test_registration_follows_the_phases(tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd")
    await etcd.start()
    client = EtcdClient([etcd.endpoint])
    key = keyspace.replica(NAME, "slot-1")

    async def has_state(state: "registry_pb2.ReplicaState") -> bool:
        found = await client.get(key)
        return found is not None and json_format.Parse(found.value, registry_pb2.Replica()).state == state

    try:
        async with running_engine(tmp_path / "home", replica_id="slot-1", node_id="n1", etcd_endpoints=(etcd.endpoint,)) as (
            engine,
            channel,
        ):
            await eventually(lambda: has_state(registry_pb2.REPLICA_STATE_READY))
            found = await client.get(key)
            assert found is not None
            replica = json_format.Parse(found.value, registry_pb2.Replica())
            assert (replica.address, replica.node_id, replica.num_blocks) == (f"127.0.0.1:{engine.port}", "n1", 256)
            assert replica.runner.startswith("sim: ")
            assert replica.ready_unix_ms > 0
            await engine_pb2_grpc.EngineStub(channel).Drain(engine_pb2.DrainRequest(timeout_s=1), timeout=20)
            await eventually(lambda: has_state(registry_pb2.REPLICA_STATE_DRAINING))
        assert await client.get(key) is None
    finally:
        await client.close()
        etcd.kill()


COMMAND = [sys.executable, "-m", "services.engine"]


async def test_process_serves_exports_metrics_and_drains_on_sigterm(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    port, metrics_port = free_port(), free_port()
    settings = replica_environ(tmp_path, runner="sim", port=port, metrics_port=metrics_port, sim_step_ms=20)
    process = await asyncio.create_subprocess_exec(*COMMAND, env=settings, stderr=subprocess.DEVNULL)
    try:
        async with connect(f"127.0.0.1:{port}") as channel:
            await eventually(lambda: serving(channel))
            gateway = await GatewayStub(channel).hello()
            await gateway.start("a", max_output_tokens=40)
            await gateway.read()
            url = f"http://127.0.0.1:{metrics_port}/metrics"
            metrics = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
            process.send_signal(signal.SIGTERM)
            (heard,) = await gateway.until_end("a")
            assert heard.finished is not None
            assert len(heard.token_ids) == 40
            assert await gateway.read() is None
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total", "generation_tokens_total"):
        assert f'\nvllm:{name}{{model_name="{NAME}"}} ' in metrics
        assert f'\ninferway_engine_{name}{{model_name="{NAME}"}} ' in metrics
    assert f'vllm:num_requests_running{{model_name="{NAME}"}} 1.0' in metrics
    assert f'vllm:time_to_first_token_seconds_count{{model_name="{NAME}"}} 1.0' in metrics
    assert "vllm:cache_config_info{" in metrics


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runner": "sim", "num_blocks": 0, "nonsense": 1}, "INFERWAY_ENGINE_NONSENSE"),
        ({"runner": "sim", "max_step_tokens": 4, "max_num_sequences": 8}, "max_step_tokens"),
        ({"runner": "sim", "model": "absent"}, "absent"),
        ({"runner": "torch", "dtype": "float8"}, "float8"),
    ],
)
def test_process_that_cannot_start_says_why(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    write_tiny_model(tmp_path)
    done = subprocess.run(COMMAND, env=replica_environ(tmp_path, **settings), stderr=subprocess.PIPE, text=True, timeout=50, check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


async def serving(channel: grpc.aio.Channel) -> bool:
    try:
        response = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)
    except grpc.aio.AioRpcError:
        return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)
