"""The supervisor over real servers: kill -9 of one is repaired with its data kept, and a stop frees every port."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import etcd, preflight, tansu
from deploy.local.home import Home
from deploy.local.mesh_status import ChildState
from deploy.local.ports import PortPlan
from deploy.local.process import ProcessIdentity
from deploy.local.supervise import Launcher, SystemClock
from deploy.local.supervisor import Supervisor
from services.kit.etcd import EtcdClient
from tests.harness.children import Board
from tests.harness.eventually import eventually
from tests.harness.ports import free_range


class ShortPauses(SystemClock):
    """Real time with pauses of at most a tenth of a second."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.1))


class Servers:
    """etcd and a broker under one supervisor, in the test's process."""

    def __init__(self, directory: Path) -> None:
        self.home = Home(directory)
        self.home.create()
        client, peer, broker = free_range(3)
        self.ports = {"client": client, "peer": peer, "broker": broker}
        plan = replace(PortPlan.from_base(20000), etcd_client=client, etcd_peer=peer)
        specs = [etcd.child(self.home, plan), tansu.child(broker)]
        self.board = Board()
        self.stop = asyncio.Event()
        launcher = Launcher(self.home, os.environ)
        self.supervisor = Supervisor(specs, launcher, ShortPauses(), self.board.publish, housekeep=lambda: None)

    def identity(self, name: str) -> ProcessIdentity:
        (found,) = [status.identity for status in self.board.statuses if status.name == name]
        assert found is not None
        return found

    def identity_now(self, name: str) -> ProcessIdentity | None:
        """None while it is down."""
        return next(status.identity for status in self.board.statuses if status.name == name)

    def registry(self) -> EtcdClient:
        return EtcdClient([f"127.0.0.1:{self.ports['client']}"])


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    made = Servers(tmp_path)
    async with asyncio.timeout(50), asyncio.TaskGroup() as group:
        group.create_task(made.supervisor.run(made.stop))
        await made.board.until_all(ChildState.READY)
        yield made
        made.stop.set()


async def test_supervisor_repairs_a_killed_etcd_with_its_data(servers: Servers) -> None:
    client = servers.registry()
    await client.put("/kept", b"value")
    killed = servers.identity("etcd")

    killed.signal(signal.SIGKILL)
    await servers.board.until(lambda states: states["etcd"] is not ChildState.READY)
    await servers.board.until_all(ChildState.READY)

    found = await client.get("/kept")
    await client.close()
    assert found is not None and found.value == b"value"
    assert servers.identity("etcd") != killed


async def test_supervisor_replaces_a_frozen_etcd_and_keeps_its_data(servers: Servers) -> None:
    client = servers.registry()
    await client.put("/kept", b"value")
    await client.close()
    frozen = servers.identity("etcd")

    frozen.signal(signal.SIGSTOP)
    await eventually(lambda: servers.identity_now("etcd") not in (None, frozen), 40)
    await servers.board.until_all(ChildState.READY)

    client = servers.registry()
    found = await client.get("/kept")
    await client.close()
    assert found is not None and found.value == b"value"
    (status,) = [status for status in servers.board.statuses if status.name == "etcd"]
    assert (status.num_restarts, status.last_exit) == (1, "did not answer: killed by SIGKILL")


async def test_supervisor_stopped_frees_every_port(servers: Servers) -> None:
    running = [servers.identity(name) for name in ("etcd", "tansu")]

    servers.stop.set()
    await servers.board.until_all(ChildState.STOPPED)

    assert not any(one.is_alive for one in running)
    preflight.check_ports(servers.ports)
