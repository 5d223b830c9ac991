"""A replica process without a model: registers, answers its health, and behaves as the setting `script` says.

Scripts: "" works; "exit" ends at once with status 3; "unready" never becomes ready; "busy" drains only when `<home>/finish-<id>` exists.
While `<home>/hang-<id>` exists its health says NOT_SERVING.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from inferway.common.v1 import registry_pb2 as pb
from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.kit import config, keyspace
from services.kit.etcd import EtcdClient, LeaseKeeper
from services.kit.metrics import new_registry
from services.kit.registration import Registration
from services.kit.server import ServerSettings, ServiceState, main, serve

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
    def __init__(self, settings: ReplicaConfig) -> None:
        self._settings = settings
        self._home = Path(settings.home)
        self._draining = False
        self._told_to_end = asyncio.Event()

    async def Drain(self, request: engine_pb2.DrainRequest, context: object) -> engine_pb2.DrainResponse:
        self._told_to_end.set()
        self._mark("told-to-end").touch()
        return engine_pb2.DrainResponse()

    def register(self, server: grpc.aio.Server) -> Sequence[str]:
        engine_pb2_grpc.add_EngineServicer_to_server(self, server)
        return ["inferway.engine.v1.Engine"]

    async def run(self, state: ServiceState) -> None:
        settings = self._settings
        client = EtcdClient(settings.etcd_endpoints)
        keeper = LeaseKeeper(client)
        key = keyspace.replica(settings.model, settings.replica_id)
        self._entry = Registration(client, keeper, key, self._message(pb.REPLICA_STATE_STARTING), ttl_s=2)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keeper.run())
            tasks.create_task(self._entry.run())
            tasks.create_task(self._show_health(state))

    async def drain(self, timeout_s: float) -> None:
        self._draining = True
        self._entry.update(self._message(pb.REPLICA_STATE_DRAINING))
        if self._settings.script == "busy":
            await self._until_finished()

    async def _show_health(self, state: ServiceState) -> None:
        if self._settings.script == "unready":
            await asyncio.Event().wait()
        self._entry.update(self._message(pb.REPLICA_STATE_READY))
        while not self._draining:
            await state.set_ready(not self._mark("hang").exists())
            await asyncio.sleep(_LOOK_S)
        await asyncio.Event().wait()

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
        address = f"{settings.host}:{settings.port}"
        return pb.Replica(
            replica_id=settings.replica_id,
            model=settings.model,
            node_id=settings.node_id,
            address=address,
            state=state,
            incarnation=str(os.getpid()),
        )


async def run() -> None:
    settings = config.load(ReplicaConfig, "INFERWAY_ENGINE_", os.environ)
    if settings.script == "exit":
        print("the weights are of another kind", file=sys.stderr)
        sys.exit(3)
    replica = ScriptedReplica(settings)
    server = ServerSettings(host=settings.host, port=settings.port, drain_timeout_s=settings.drain_timeout_s)
    await serve(server, name="replica", registry=new_registry(), register=replica.register, run=replica.run, drain=replica.drain)


if __name__ == "__main__":
    main(run)
