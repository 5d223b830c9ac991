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
_ALIVE_TIMEOUT_S = 5.0


def grpc_health(port: int) -> Probe:
    """Ready when the standard health service on the loopback `port` says SERVING for the whole server."""

    async def probe() -> bool:
        return await _ask_health(port, _HEALTH_TIMEOUT_S) == int(health_pb2.HealthCheckResponse.SERVING)

    return probe


def grpc_alive(port: int, timeout_s: float = _ALIVE_TIMEOUT_S) -> Probe:
    """Alive when the standard health service on the loopback `port` says anything at all within the time-out."""

    async def probe() -> bool:
        return await _ask_health(port, timeout_s) is not None

    return probe


async def _ask_health(port: int, timeout_s: float) -> int | None:
    """What the health service says of the whole server; None when nobody answers."""
    if not await probes.is_listening(port):
        return None
    async with channel.connect(f"127.0.0.1:{port}") as connection:
        try:
            answer = await health_pb2_grpc.HealthStub(connection).Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return None
        return int(answer.status)


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
