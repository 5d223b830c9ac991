"""What the control plane answers: codes, reasons and fields, health and metrics."""

import asyncio
import urllib.request
from collections.abc import Awaitable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inferway.common.v1 import registry_pb2
from inferway.scheduler.v1 import scheduler_pb2 as pb
from services.kit.errors import InferwayError
from services.kit.status import from_rpc_error
from tests.harness.control_plane import CALL_S, ControlPlane, Scheduler, eventually
from tests.harness.ports import free_port


async def refusal(call: Awaitable[object]) -> InferwayError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def deploy(**fields: object) -> pb.DeployRequest:
    return pb.DeployRequest(deployment=registry_pb2.Deployment(**fields))  # type: ignore[arg-type]


async def started(plane: ControlPlane, **settings: str) -> Scheduler:
    scheduler = plane.scheduler(**settings)
    await scheduler.stub.ListNodes(pb.ListNodesRequest(), timeout=20, wait_for_ready=True)
    return scheduler


async def test_api_bad_requests_name_the_field(plane: ControlPlane) -> None:
    stub = (await started(plane)).stub
    for call, param in (
        (stub.Deploy(pb.DeployRequest(), timeout=CALL_S), "deployment.model"),
        (stub.Deploy(deploy(model="m", num_replicas=4_000_000_000), timeout=CALL_S), "deployment.num_replicas"),
        (stub.Deploy(deploy(model="m", engine_settings={"home": "/"}), timeout=CALL_S), "deployment.engine_settings[home]"),
        (stub.Scale(pb.ScaleRequest(model="m", num_replicas=1001), timeout=CALL_S), "num_replicas"),
        (stub.Drain(pb.DrainRequest(), timeout=CALL_S), "target"),
        (stub.Drain(pb.DrainRequest(node_id="a", timeout_s=4_000_000_000), timeout=CALL_S), "timeout_s"),
        (stub.Explain(pb.ExplainRequest(), timeout=CALL_S), "model"),
    ):
        error = await refusal(call)
        assert (error.code, error.reason, error.metadata["param"]) == ("INVALID_ARGUMENT", "INVALID_FIELD", param)


async def test_api_unknown_objects_are_not_found(plane: ControlPlane) -> None:
    stub = (await started(plane)).stub
    for call in (
        stub.Scale(pb.ScaleRequest(model="m", num_replicas=1), timeout=CALL_S),
        stub.Undeploy(pb.UndeployRequest(model="../m"), timeout=CALL_S),
        stub.Drain(pb.DrainRequest(replica_id="m-0"), timeout=CALL_S),
        stub.Drain(pb.DrainRequest(node_id="../a"), timeout=CALL_S),
        stub.Uncordon(pb.UncordonRequest(node_id="a"), timeout=CALL_S),
        stub.Explain(pb.ExplainRequest(model="m/.."), timeout=CALL_S),
    ):
        assert (await refusal(call)).code == "NOT_FOUND"


async def test_api_rollouts_say_what_to_use_instead(plane: ControlPlane) -> None:
    stub = (await started(plane)).stub
    for call in (
        stub.StartRollout(pb.StartRolloutRequest(), timeout=CALL_S),
        stub.PauseRollout(pb.PauseRolloutRequest(), timeout=CALL_S),
        stub.PromoteRollout(pb.PromoteRolloutRequest(), timeout=CALL_S),
        stub.AbortRollout(pb.AbortRolloutRequest(), timeout=CALL_S),
    ):
        error = await refusal(call)
        assert error.code == "UNIMPLEMENTED"
        assert "Deploy with another model_version" in error.message


async def test_api_deployments_change_and_go(plane: ControlPlane) -> None:
    scheduler = await started(plane)
    first = await scheduler.deploy("b-model", 2, threads="2")
    assert (await scheduler.deploy("b-model", 2, threads="2")) == first
    await scheduler.deploy("a-model", 0)
    scaled = await scheduler.stub.Scale(pb.ScaleRequest(model="b-model", num_replicas=3), timeout=CALL_S)
    assert (scaled.deployment.generation, scaled.deployment.engine_settings["threads"]) == (2, "2")
    listed = await scheduler.stub.ListDeployments(pb.ListDeploymentsRequest(), timeout=CALL_S)
    assert [each.deployment.model for each in listed.deployments] == ["a-model", "b-model"]
    assert [each.problem for each in listed.deployments] == ["", "3 replicas have no place: no node is registered"]
    await scheduler.stub.Undeploy(pb.UndeployRequest(model="b-model"), timeout=CALL_S)
    listed = await scheduler.stub.ListDeployments(pb.ListDeploymentsRequest(), timeout=CALL_S)
    assert [each.deployment.model for each in listed.deployments] == ["a-model"]


async def test_api_etcd_away_is_unavailable_and_comes_back(plane: ControlPlane) -> None:
    scheduler = await started(plane)
    plane.etcd.kill()
    error = await refusal(scheduler.stub.ListNodes(pb.ListNodesRequest(), timeout=CALL_S))
    assert (error.code, error.reason) == ("UNAVAILABLE", "DEPENDENCY_UNAVAILABLE")
    await plane.etcd.start()
    await eventually(scheduler.assignments, lambda found: found == {})


async def test_api_health_and_metrics(plane: ControlPlane) -> None:
    metrics_port, port = free_port(), free_port()
    await started(plane, METRICS_PORT=str(metrics_port), PORT=str(port))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def status() -> int:
            return (await health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)).status

        await eventually(status, lambda found: found == health_pb2.HealthCheckResponse.SERVING)

    async def scrape() -> str:
        return await asyncio.to_thread(
            lambda: urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=5).read().decode()
        )

    await eventually(scrape, lambda text: "inferway_scheduler_leading 1.0" in text)
