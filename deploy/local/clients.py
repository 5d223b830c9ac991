"""Typed wrappers round the gRPC calls that the native runner makes."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.local import probes
from deploy.local.probes import Probe

_HEALTH_TIMEOUT_S = 2.0


def grpc_health(port: int) -> Probe:
    """Ready when the standard health service on the loopback `port` says SERVING for the whole server."""

    async def probe() -> bool:
        if not await probes.is_listening(port):
            return False
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    return probe
