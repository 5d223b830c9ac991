"""Fixtures of the tests that run against real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.kit.etcd import EtcdClient
from tests.harness.etcd import EtcdServer


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdServer]:
    server = EtcdServer(tmp_path / "etcd")
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def connect(etcd: EtcdServer) -> AsyncIterator[Callable[[], EtcdClient]]:
    clients: list[EtcdClient] = []

    def open_client() -> EtcdClient:
        clients.append(EtcdClient([etcd.endpoint]))
        return clients[-1]

    yield open_client
    for client in clients:
        await client.close()


@pytest.fixture
def client(connect: Callable[[], EtcdClient]) -> EtcdClient:
    return connect()
