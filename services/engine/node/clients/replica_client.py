"""Asks replicas for their health, and ends their work when their time is over."""

import contextlib

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.kit.channel import connect

_END_WORK_TIMEOUT_S = 2.0


class GrpcReplicaClient:
    """ReplicaClient over gRPC, with one channel per address: as many as the node has replica ports, at most."""

    def __init__(self, health_timeout_s: float) -> None:
        self._health_timeout_s = health_timeout_s
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def is_serving(self, address: str) -> bool:
        """See ReplicaClient."""
        stub = health_pb2_grpc.HealthStub(self._channel(address))
        try:
            response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=self._health_timeout_s)
        except grpc.aio.AioRpcError:
            return False
        return bool(response.status == health_pb2.HealthCheckResponse.SERVING)

    async def end_work(self, address: str) -> None:
        """See ReplicaClient."""
        stub = engine_pb2_grpc.EngineStub(self._channel(address))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await stub.Drain(engine_pb2.DrainRequest(timeout_s=0), timeout=_END_WORK_TIMEOUT_S)

    async def close(self) -> None:
        """Closes every channel."""
        for channel in self._channels.values():
            await channel.close()

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = connect(address)
        return self._channels[address]
