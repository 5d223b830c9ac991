"""A small broker for tests of the client's calls: Tansu in memory. It proves nothing about durability; Apache Kafka does (broker.py)."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from deploy.local import binaries
from tests.harness.eventually import eventually
from tests.harness.ports import free_port


class TansuBroker:
    """One Tansu process; what it held is gone when it ends."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "tansu.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Starts the process and waits until it listens."""
        url = f"tcp://{self.bootstrap}"
        command = [str(binaries.find("tansu")), "broker", f"--listener-url={url}", f"--advertised-listener-url={url}"]
        self._process = self._spawn([*command, "--storage-engine=memory://tansu/"])
        await eventually(self._listens)

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9, and waits for the end of the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True
