"""A router on loopback with a real etcd, scripted engines and gateways."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest

from inferway.common.v1 import registry_pb2
from inferway.router.v1 import router_pb2
from services.kit import keyspace
from services.kit.etcd import EtcdClient
from services.router.config import RouterConfig
from tests.harness.etcd import EtcdServer
from tests.harness.router_service import DispatchClient, RunningRouter
from tests.harness.scripted_engine import MODEL, ScriptedEngine


@dataclass
class Mesh:
    """What a test of the router works with; ``router_address`` is set by ``start_router``."""

    etcd: EtcdServer
    client: EtcdClient
    stack: contextlib.AsyncExitStack
    router_address: str = ""
    routers: list[RunningRouter] = field(default_factory=list)
    registered: set[str] = field(default_factory=set)

    @property
    def router(self) -> RunningRouter:
        """The router started last."""
        return self.routers[-1]

    async def start_router(self, port: int = 0, **settings: object) -> RunningRouter:
        config = RouterConfig(**{"etcd_endpoints": (self.etcd.endpoint,), "drain_timeout_s": 1.0, **settings})  # type: ignore[arg-type]
        router = RunningRouter(config, port)
        self.router_address = await router.start()
        self.routers.append(router)
        self.stack.push_async_callback(router.stop)
        return router

    async def engine(
        self,
        replica_id: str,
        *,
        max_num_sequences: int = 8,
        model_name: str = MODEL,
        state: registry_pb2.ReplicaState = registry_pb2.REPLICA_STATE_READY,
        period_s: float | None = 0.5,
    ) -> ScriptedEngine:
        """A running, registered replica."""
        engine = ScriptedEngine(replica_id, max_num_sequences=max_num_sequences, model=model_name, period_s=period_s)
        await engine.start()
        self.stack.push_async_callback(engine.kill)
        await self.register(engine, state)
        return engine

    async def register(self, engine: ScriptedEngine, state: registry_pb2.ReplicaState = registry_pb2.REPLICA_STATE_READY) -> None:
        key, value = engine.entry(state)
        await self.client.put(key, value)
        self.registered.add(engine.replica_id)

    async def unregister(self, engine: ScriptedEngine) -> None:
        await self.client.delete(engine.entry()[0])
        self.registered.discard(engine.replica_id)

    async def wait_connected(self, *replica_ids: str) -> None:
        """Waits until the router's connections to these replicas, and no others, work."""
        await self.router.until(lambda view: {known.facts.replica_id for known in view.replicas() if known.connected} == set(replica_ids))

    async def wait_known(self, *replica_ids: str) -> None:
        """Waits until the router knows exactly these replicas."""
        await self.router.until(lambda view: {known.facts.replica_id for known in view.replicas()} == set(replica_ids))

    async def gateway(self, gateway_id: str = "gateway-1", held: tuple[router_pb2.HeldGrant, ...] = ()) -> DispatchClient:
        """A gateway with an open stream; the router has read the registry and knows all replicas in it by then."""
        await self.router.until(lambda view: view.complete)
        await self.wait_known(*self.registered)
        gateway = DispatchClient(self.router_address, gateway_id)
        self.stack.push_async_callback(gateway.close)
        await gateway.open(held)
        return gateway


@pytest.fixture(scope="package")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    asyncio.run(server.start())
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def open_mesh(etcd: EtcdServer) -> AsyncIterator[Mesh]:
    """A mesh on an empty registry; ends everything that was started in it."""
    client = EtcdClient([etcd.endpoint])
    try:
        await client.delete(keyspace.ROOT, prefix=True)
        async with contextlib.AsyncExitStack() as stack:
            yield Mesh(etcd, client, stack)
    finally:
        await client.close()


@pytest.fixture
async def mesh(shared_etcd: EtcdServer) -> AsyncIterator[Mesh]:
    async with open_mesh(shared_etcd) as mesh:
        yield mesh
