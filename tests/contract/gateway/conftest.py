"""A gateway on loopback with a real etcd, and an engine and a router that do what the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.kit import keyspace
from services.kit.etcd import EtcdClient
from tests.harness.dispatch_router import DispatchRouter
from tests.harness.etcd import EtcdServer
from tests.harness.gateway_service import RunningGateway, fill_registry
from tests.harness.session_engine import Play, SessionEngine, echo


@dataclass
class Mesh:
    """What a test of the gateway works with."""

    etcd: EtcdServer
    client: EtcdClient
    router: DispatchRouter
    home: Path
    stack: contextlib.AsyncExitStack
    engines: list[SessionEngine] = field(default_factory=list)

    @property
    def engine(self) -> SessionEngine:
        """The first engine."""
        return self.engines[0]

    async def add_engine(self, play: Play | None = echo) -> SessionEngine:
        """One more replica, r1, r2, ..., known to the router."""
        engine = SessionEngine(play)
        await engine.start()
        self.stack.push_async_callback(engine.kill)
        self.engines.append(engine)
        self.router.replicas[f"r{len(self.engines)}"] = engine.address
        return engine

    async def start_gateway(self, **settings: Any) -> RunningGateway:
        """A ready gateway."""
        gateway = RunningGateway(self.home, self.etcd.endpoint, self.router.address, **settings)
        return await self.stack.enter_async_context(gateway)


@pytest.fixture(scope="package")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One etcd for all tests of the package."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    asyncio.run(server.start())
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def open_mesh(etcd: EtcdServer, home: Path) -> AsyncIterator[Mesh]:
    """A registry with tenants, keys and a deployment, a router that grants, and no engine yet; ends all that was started."""
    client = EtcdClient([etcd.endpoint])
    try:
        await client.delete(keyspace.ROOT, prefix=True)
        await fill_registry(client)
        router = DispatchRouter()
        await router.start()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(router.kill)
            yield Mesh(etcd, client, router, home, stack)
    finally:
        await client.close()


@pytest.fixture
async def mesh(shared_etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[Mesh]:
    """A mesh on the shared etcd."""
    async with open_mesh(shared_etcd, tmp_path) as mesh:
        yield mesh


@pytest.fixture
async def gateway(mesh: Mesh) -> RunningGateway:
    """A ready gateway with one engine that answers "one two three"."""
    await mesh.add_engine()
    return await mesh.start_gateway()
