"""A real one-node Apache Kafka for tests about durability: start it, kill it, start it again on the same ports and data."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deploy.local import java, kafka_artefacts
from deploy.local.kafka import KafkaBroker
from deploy.local.probes import Probe
from deploy.local.process import Spawned, spawn
from deploy.local.rotation import last_line
from tests.harness.ports import free_range

START_TIMEOUT_S = 45.0
_POLL_S = 0.05


class Broker:
    """One Kafka node below `directory`. Only this object's own process is ever signalled."""

    def __init__(self, kafka: KafkaBroker, probe: Probe | None = None) -> None:
        self._kafka = kafka
        self._probe = probe or kafka.child().probe
        self._log = kafka.directory / "kafka.log"
        self._running: Spawned | None = None

    @property
    def bootstrap(self) -> str:
        """host:port for clients; stays the same over restarts."""
        return f"127.0.0.1:{self._kafka.port}"

    @property
    def pid(self) -> int:
        """Process id of the running node."""
        assert self._running is not None, "the broker is not running"
        return self._running.identity.pid

    async def start(self) -> None:
        """Start and wait until metadata are served; AssertionError with the last log line when that does not happen."""
        assert self._running is None, "the broker is running already"
        self._running = await spawn(self._kafka.argv(), os.environ, self._log, cwd=self._kafka.directory)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await self._probe():
                    assert self._running.identity.is_alive, f"the broker died: {last_line(self._log)}"
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise AssertionError(f"the broker was not ready after {START_TIMEOUT_S} s: {last_line(self._log)}") from error

    async def kill(self) -> None:
        """SIGKILL, as at a power cut; returns when the process is gone."""
        assert self._running is not None, "the broker is not running"
        self._running.identity.signal(signal.SIGKILL)
        await self._running.wait()
        self._running = None

    async def stop(self) -> None:
        """SIGTERM and wait; no effect when it is not running."""
        if self._running is not None:
            await self._running.stop(grace_s=15.0)
            self._running = None


def kafka_in(directory: Path) -> KafkaBroker:
    """A node on free ports with its data below `directory`, not prepared; fetches Kafka's jars when they are not there."""
    runtime = java.find(os.environ)
    assert runtime is not None, "these tests need Java 17 or newer: run `make setup`"
    port, controller_port = free_range(2)
    libs = kafka_artefacts.ensure(os.environ)
    return KafkaBroker(java=runtime, libs=libs, directory=directory, port=port, controller_port=controller_port)


@asynccontextmanager
async def running_broker(directory: Path) -> AsyncIterator[Broker]:
    """A started broker on free ports with its data below `directory`."""
    kafka = await asyncio.to_thread(kafka_in, directory)
    await asyncio.to_thread(kafka.prepare)
    broker = Broker(kafka)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()
