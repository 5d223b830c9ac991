"""Typed wrappers round the gRPC calls that the native runner makes."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.local import probes
from deploy.local.probes import Probe
from inferway.common.v1 import registry_pb2
from inferway.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.kit import channel, status

_TIMEOUT_S = 5.0
_HEALTH_TIMEOUT_S = 2.0


def grpc_health(port: int) -> Probe:
    """Ready when the standard health service on the loopback `port` says SERVING for the whole server."""

    async def probe() -> bool:
        if not await probes.is_listening(port):
            return False
        async with channel.connect(f"127.0.0.1:{port}") as connection:
            try:
                answer = await health_pb2_grpc.HealthStub(connection).Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    return probe


class Scheduler:
    """The scheduler as the runner needs it. Calls raise InferwayError."""

    def __init__(self, connection: grpc.aio.Channel) -> None:
        self._stub = scheduler_pb2_grpc.ControlPlaneStub(connection)

    async def deployment(self, model: str) -> scheduler_pb2.DeploymentStatus | None:
        """What is desired and observed of `model`; None when it is not deployed."""
        try:
            answer = await self._stub.ListDeployments(scheduler_pb2.ListDeploymentsRequest(), timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc_error(error) from error
        return next((found for found in answer.deployments if found.deployment.model == model), None)

    async def deploy(self, model: str, num_replicas: int) -> None:
        """Ask for `num_replicas` of the newest version of `model`."""
        deployment = registry_pb2.Deployment(model=model, num_replicas=num_replicas)
        try:
            await self._stub.Deploy(scheduler_pb2.DeployRequest(deployment=deployment), timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc_error(error) from error
