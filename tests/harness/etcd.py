"""A real etcd server for tests: own data directory, ports of loopback, and the faults that tests need."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from services.kit.etcd import EtcdClient, EtcdError
from tests.harness.certificates import CertificateAuthority
from tests.harness.eventually import eventually
from tests.harness.ports import free_port

_START_TIMEOUT_S = 20.0


class EtcdServer:
    """One etcd process. ``start`` after ``kill`` comes back on the same port with the same data.

    With ``authority`` it speaks TLS to clients and demands a certificate of that authority; "root" is then issued for its own use.
    """

    def __init__(self, directory: Path, *extra_args: str, authority: CertificateAuthority | None = None) -> None:
        self._directory = directory
        self._extra_args = extra_args
        self._authority = authority
        self._root = authority.issue("root") if authority else None
        self._port = free_port()
        self._peer_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def etcdctl(self) -> Path:
        return Path(sys.executable).parent / "etcdctl"

    async def start(self) -> None:
        """Starts the process and waits until it answers."""
        scheme = "https" if self._authority else "http"
        client_url, peer_url = f"{scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        command = [
            str(Path(sys.executable).parent / "etcd"),
            *("--data-dir", str(self._directory / "data"), "--name", "test"),
            *("--listen-client-urls", client_url, "--advertise-client-urls", client_url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"test={peer_url}", "--log-level", "error"),
            *self._tls_args(),
            *self._extra_args,
        ]
        self._directory.mkdir(parents=True, exist_ok=True)
        self._process = self._spawn(command)
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Waits until the server answers."""
        credentials = self._authority.credentials(self._root) if self._authority else None
        client = EtcdClient([self.endpoint], credentials, timeout_s=1.0)
        try:
            await eventually(lambda: _answers(client), _START_TIMEOUT_S)
        finally:
            await client.close()

    def _tls_args(self) -> list[str]:
        if self._authority is None or self._root is None:
            return []
        files = ["--cert-file", self._root.cert, "--key-file", self._root.key, "--trusted-ca-file", self._authority.cert]
        return [*map(str, files), "--client-cert-auth"]

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._directory / "etcd.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9, and waits for the end of the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def ctl(self, *args: str) -> str:
        """Runs etcdctl against this server and returns what it printed."""
        tls: list[str] = []
        if self._authority and self._root:
            tls = ["--cacert", str(self._authority.cert), "--cert", str(self._root.cert), "--key", str(self._root.key)]
        process = await asyncio.create_subprocess_exec(
            str(self.etcdctl), "--endpoints", self.endpoint, *tls, *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()


async def _answers(client: EtcdClient) -> bool:
    try:
        return (await client.status()).has_leader
    except EtcdError:
        return False
