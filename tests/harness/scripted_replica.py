"""A replica process without a model: registers, answers its health, and behaves as the setting `script` says.

Scripts: "" works; "exit" ends at once with status 3; "unready" never becomes ready; "busy" drains only when `<home>/finish-<id>` exists.
It is made of few parts, so that it starts quickly, and adds its pid to `<home>/pids-<id>`.
"""

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from inferway.common.v1 import registry_pb2 as pb
from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.kit import config, keyspace
from services.kit.errors import ConfigError
from services.kit.etcd import EtcdClient, LeaseKeeper
from services.kit.registration import Registration

_LOOK_S = 0.02


@dataclass(frozen=True)
class ReplicaConfig:
    """The settings that the node agent gives to every replica."""

    replica_id: str
    model: str
    node_id: str
    home: str
    host: str
    port: int
    metrics_port: int
    etcd_endpoints: tuple[str, ...]
    kafka_bootstrap: str = ""
    model_version: str = ""
    advertised_host: str = ""
    drain_timeout_s: float = 30.0
    script: str = ""


class ScriptedReplica(engine_pb2_grpc.EngineServicer):
    def __init__(self, settings: ReplicaConfig, client: EtcdClient) -> None:
        self._settings = settings
        self._home = Path(settings.home)
        self._health = health.aio.HealthServicer()
        self._told_to_end = asyncio.Event()
        self._keeper = LeaseKeeper(client)
        key = keyspace.replica(settings.model, settings.replica_id)
        self._entry = Registration(client, self._keeper, key, self._message(pb.REPLICA_STATE_STARTING), ttl_s=2)

    async def Drain(self, request: engine_pb2.DrainRequest, context: object) -> engine_pb2.DrainResponse:
        self._told_to_end.set()
        self._mark("told-to-end").touch()
        return engine_pb2.DrainResponse()

    async def serve(self, stop: asyncio.Event) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        engine_pb2_grpc.add_EngineServicer_to_server(self, server)
        server.add_insecure_port(f"{self._settings.host}:{self._settings.port}")
        await server.start()
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(self._keeper.run()), tasks.create_task(self._entry.run())]
            if self._settings.script != "unready":
                await self._show(pb.REPLICA_STATE_READY)
            await stop.wait()
            await self._show(pb.REPLICA_STATE_DRAINING)
            if self._settings.script == "busy":
                await self._until_finished()
            for task in background:
                task.cancel()
        await server.stop(0)

    async def _show(self, state: pb.ReplicaState) -> None:
        serving = state == pb.REPLICA_STATE_READY
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set("", status)
        self._entry.update(self._message(state))

    async def _until_finished(self) -> None:
        while not self._mark("finish").exists():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._told_to_end.wait()
                    return

    def _mark(self, what: str) -> Path:
        return self._home / f"{what}-{self._settings.replica_id}"

    def _message(self, state: pb.ReplicaState) -> pb.Replica:
        settings = self._settings
        return pb.Replica(
            replica_id=settings.replica_id,
            model=settings.model,
            node_id=settings.node_id,
            address=f"{settings.host}:{settings.port}",
            state=state,
            incarnation=str(os.getpid()),
        )


async def main() -> None:
    try:
        settings = config.load(ReplicaConfig, "INFERWAY_ENGINE_", os.environ)
    except ConfigError as error:
        sys.exit(f"cannot start:\n{error.message}")
    with (Path(settings.home) / f"pids-{settings.replica_id}").open("a") as pids:
        print(os.getpid(), file=pids)
    if settings.script == "exit":
        sys.exit("the weights are of another kind")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = EtcdClient(settings.etcd_endpoints)
    await ScriptedReplica(settings, client).serve(stop)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
