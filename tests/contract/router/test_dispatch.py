"""Dispatch on loopback: grants, refusals, and the ends of grants and streams."""

from __future__ import annotations

import time

import grpc
import pytest

from inferway.common.v1 import registry_pb2
from inferway.router.v1 import router_pb2
from services.kit import status
from tests.contract.router.conftest import Mesh
from tests.harness.router_service import DispatchClient

LOST = router_pb2.DONE_OUTCOME_REPLICA_LOST


async def test_dispatch_two_idle_replicas_share_cold_traffic(mesh: Mesh) -> None:
    await mesh.start_router()
    await mesh.engine("a", max_num_sequences=64)
    await mesh.engine("b", max_num_sequences=64)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    for _ in range(40):
        await gateway.want()
    picks = [(await gateway.grant()).replica_id for _ in range(40)]
    assert 16 <= picks.count("a") <= 24


async def test_dispatch_busy_replica_gets_clearly_less(mesh: Mesh) -> None:
    await mesh.start_router()
    busy = await mesh.engine("a", max_num_sequences=64)
    await mesh.engine("b", max_num_sequences=64)
    busy.report(num_running=40, num_used_blocks=600)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    for _ in range(30):
        await gateway.want()
    picks = [(await gateway.grant()).replica_id for _ in range(30)]
    assert picks.count("a") <= 6


async def test_dispatch_grant_names_address_and_version(mesh: Mesh) -> None:
    await mesh.start_router()
    engine = await mesh.engine("a")
    gateway = await mesh.gateway()
    want_id = await gateway.want(model_version="v1")
    grant = await gateway.grant()
    assert (grant.want_id, grant.replica_id, grant.address, grant.model_version) == (want_id, "a", engine.address, "v1")


async def test_dispatch_empty_set_is_refused_at_once(mesh: Mesh) -> None:
    await mesh.start_router(no_replica_grace_s=3600.0)
    await mesh.engine("other", model_name="another-model")
    gateway = await mesh.gateway()
    await mesh.wait_connected("other")
    want_id = await gateway.want()
    reject = await gateway.reject()
    assert (reject.want_id, reject.reason) == (want_id, "NO_READY_REPLICA")
    assert "none is registered" in reject.message
    assert reject.retry_after_ms >= 1000


async def test_dispatch_unknown_version_is_refused_at_once(mesh: Mesh) -> None:
    await mesh.start_router(no_replica_grace_s=3600.0)
    await mesh.engine("a")
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    await gateway.want(model_version="v2")
    assert (await gateway.reject()).reason == "NO_READY_REPLICA"


async def test_dispatch_starting_replica_holds_the_want_until_it_is_ready(mesh: Mesh) -> None:
    await mesh.start_router(no_replica_grace_s=3600.0)
    engine = await mesh.engine("a", state=registry_pb2.REPLICA_STATE_STARTING)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    await gateway.want()
    explained = await gateway.explain()
    assert [verdict.excluded_by for verdict in explained.verdicts] == ["not_ready"]
    assert explained.queue_position == 1
    await mesh.register(engine)
    assert (await gateway.grant()).replica_id == "a"


async def test_dispatch_starting_replica_is_not_waited_for_beyond_the_grace(mesh: Mesh) -> None:
    await mesh.start_router(no_replica_grace_s=0.2)
    await mesh.engine("a", state=registry_pb2.REPLICA_STATE_STARTING)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    await gateway.want()
    reject = await gateway.reject()
    assert (reject.reason, "1 not_ready" in reject.message) == ("NO_READY_REPLICA", True)


async def test_dispatch_full_replica_queues_in_order_until_done(mesh: Mesh) -> None:
    await mesh.start_router()
    await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    wants = [await gateway.want() for _ in range(4)]
    granted = []
    for _ in wants:
        granted.append((await gateway.grant()).want_id)
        await gateway.done(granted[-1])
    assert granted == wants


async def test_dispatch_queue_full_is_refused_with_a_delay(mesh: Mesh) -> None:
    await mesh.start_router(max_queue_length=2)
    await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    wants = [await gateway.want() for _ in range(4)]
    assert (await gateway.grant()).want_id == wants[0]
    reject = await gateway.reject()
    assert (reject.want_id, reject.reason) == (wants[3], "QUEUE_FULL")
    assert reject.retry_after_ms >= 1000


async def test_dispatch_want_deadline_ends_the_wait(mesh: Mesh) -> None:
    await mesh.start_router()
    await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    await gateway.want()
    await gateway.grant()
    late = await gateway.want(deadline_unix_ms=time.time_ns() // 1_000_000 + 200)
    reject = await gateway.reject()
    assert (reject.want_id, reject.reason) == (late, "QUEUE_TIMEOUT")


async def test_dispatch_queue_timeout_ends_the_wait(mesh: Mesh) -> None:
    await mesh.start_router(queue_timeout_s=0.2)
    await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    await mesh.wait_connected("a")
    await gateway.want()
    await gateway.grant()
    await gateway.want()
    assert (await gateway.reject()).reason == "QUEUE_TIMEOUT"


async def test_dispatch_done_of_a_waiting_want_forgets_it(mesh: Mesh) -> None:
    await mesh.start_router()
    await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    first, second, third = [await gateway.want() for _ in range(3)]
    await gateway.grant()
    await gateway.done(second, router_pb2.DONE_OUTCOME_CANCELLED)
    await gateway.done(first)
    assert (await gateway.grant()).want_id == third


@pytest.mark.parametrize("way", ["cut", "half_close", "channel"])
async def test_dispatch_stream_end_releases_everything(mesh: Mesh, way: str) -> None:
    await mesh.start_router()
    await mesh.engine("a", max_num_sequences=2)
    first, second = await mesh.gateway("gateway-1"), await mesh.gateway("gateway-2")
    for _ in range(3):
        await first.want()
    await first.grant()
    await first.grant()
    waiting = await second.want()
    if way == "cut":
        first.cut()
    elif way == "half_close":
        await first.half_close()
    else:
        await first.channel.close()
    assert (await second.grant()).want_id == waiting
    (replica,) = await second.replicas()
    assert replica.num_granted == 1


async def test_dispatch_reconnect_brings_held_grants_along(mesh: Mesh) -> None:
    await mesh.start_router()
    engine = await mesh.engine("a", max_num_sequences=2)
    gateway = await mesh.gateway()
    await gateway.want()
    grant = await gateway.grant()
    held = router_pb2.HeldGrant(want_id=grant.want_id, replica_id="a", model=engine.model, reserved_tokens=32)
    again = await mesh.gateway("gateway-1", (held,))
    error = await gateway.end()
    assert error.code() is grpc.StatusCode.CANCELLED
    assert [replica.num_granted for replica in await again.replicas()] == [1]
    await again.done(grant.want_id)
    await again.want()
    await again.grant()
    assert [replica.num_granted for replica in await again.replicas()] == [1]


async def test_dispatch_restarted_router_counts_held_grants_again(mesh: Mesh) -> None:
    first = await mesh.start_router()
    engine = await mesh.engine("a", max_num_sequences=2)
    gateway = await mesh.gateway()
    await gateway.want()
    grant = await gateway.grant()
    engine.report(num_running=1, num_used_blocks=2)
    await first.stop()
    assert (await gateway.end()).code() is grpc.StatusCode.UNAVAILABLE
    await mesh.start_router()
    gateway = await mesh.gateway(held=(router_pb2.HeldGrant(want_id=grant.want_id, replica_id="a", model=engine.model),))
    second, third = await gateway.want(), await gateway.want()
    assert (await gateway.grant()).want_id == second
    assert [replica.num_granted for replica in await gateway.replicas()] == [2]
    await gateway.done(grant.want_id)
    engine.report(num_running=1)
    assert (await gateway.grant()).want_id == third


async def test_dispatch_first_message_must_be_hello(mesh: Mesh) -> None:
    await mesh.start_router()
    gateway = DispatchClient(mesh.router_address, gateway_id="")
    mesh.stack.push_async_callback(gateway.close)
    await gateway.open()
    error = await gateway.end()
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert status.from_rpc_error(error).reason == "INVALID_FIELD"


@pytest.mark.parametrize("fields", [{"model": ""}, {"want_id": ""}])
async def test_dispatch_want_without_model_or_id_is_refused(mesh: Mesh, fields: dict[str, str]) -> None:
    await mesh.start_router()
    gateway = await mesh.gateway()
    await gateway.want(**fields)
    assert (await gateway.end()).code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_dispatch_second_hello_ends_the_stream_and_releases(mesh: Mesh) -> None:
    await mesh.start_router()
    await mesh.engine("a", max_num_sequences=1)
    first, second = await mesh.gateway("gateway-1"), await mesh.gateway("gateway-2")
    await first.want()
    await first.grant()
    await second.want()
    await first.hello()
    assert (await first.end()).code() is grpc.StatusCode.INVALID_ARGUMENT
    await second.grant()


async def test_dispatch_drain_sends_gateways_away_at_once(mesh: Mesh) -> None:
    router = await mesh.start_router()
    await mesh.engine("a", max_num_sequences=1)
    gateway = await mesh.gateway()
    await gateway.want()
    await gateway.grant()
    await gateway.want()
    await router.stop()
    error = await gateway.end()
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert status.from_rpc_error(error).reason == "DRAINING"


async def test_dispatch_lost_replica_is_avoided_until_it_is_heard_again(mesh: Mesh) -> None:
    await mesh.start_router(suspect_hold_s=0.0, max_load_age_s=3600.0)
    engines = {name: await mesh.engine(name, period_s=None) for name in ("a", "b")}
    gateway = await mesh.gateway()
    await mesh.wait_connected("a", "b")
    await gateway.want()
    grant = await gateway.grant()
    await gateway.done(grant.want_id, LOST)
    other = "b" if grant.replica_id == "a" else "a"
    for _ in range(4):
        await gateway.want()
        assert (await gateway.grant()).replica_id == other
    engines[grant.replica_id].report(num_running=0)
    await mesh.router.until(lambda view: not any(replica.is_suspect for replica in view.replicas()))
    await gateway.want()
    assert (await gateway.grant()).replica_id == grant.replica_id
