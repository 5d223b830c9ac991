"""A real Envoy, configured by deploy/envoy, in front of a scripted gateway."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2

from deploy.envoy.descriptor import write_descriptor
from deploy.envoy.render import render_yaml
from deploy.envoy.settings import EdgeLimits, EdgeSettings, JwtSettings, TlsFiles, TraceSettings
from deploy.local.certs import EdgeCertificates, ensure
from tests.harness.scripted_gateway import ScriptedGateway
from tests.harness.tcp_proxy import TcpProxy

_START_TIMEOUT_S = 30
_ADMIN_LINE = re.compile(rb"admin address: (\S+):(\d+)")


def envoy_binary() -> str:
    """The binary beside this interpreter, else the one on PATH."""
    beside = Path(sys.executable).parent / "envoy"
    found = str(beside) if beside.exists() else shutil.which("envoy")
    assert found is not None, "Envoy is not installed: run `make setup`"
    return found


@dataclass(frozen=True)
class Edge:
    """A running edge and the gateway behind it."""

    gateway: ScriptedGateway
    wire: TcpProxy
    """The connection between both, to be cut as the death of a process cuts it."""
    certificates: EdgeCertificates
    plain_port: int
    tls_port: int
    admin_port: int
    access_log: Path

    @property
    def url(self) -> str:
        """Base URL of the plain listener."""
        return f"http://127.0.0.1:{self.plain_port}"

    @property
    def tls_url(self) -> str:
        """Base URL of the TLS listener."""
        return f"https://127.0.0.1:{self.tls_port}"


@contextlib.asynccontextmanager
async def running_edge(directory: Path, limits: EdgeLimits | None = None, jwt: JwtSettings | None = None) -> AsyncIterator[Edge]:
    """Start gateway and Envoy on free ports; files go to `directory`."""
    gateway = ScriptedGateway()
    await gateway.start()
    wire = TcpProxy(f"127.0.0.1:{gateway.port}")
    await wire.mend()
    try:
        async with running_envoy(directory, int(wire.endpoint.rpartition(":")[2]), limits, jwt) as envoy:
            yield Edge(gateway, wire, envoy.certificates, envoy.plain_port, envoy.tls_port, envoy.admin_port, envoy.access_log)
    finally:
        await wire.cut()
        await gateway.kill()


@dataclass(frozen=True)
class Envoy:
    """A running Envoy, whatever gateway is behind it."""

    certificates: EdgeCertificates
    plain_port: int
    tls_port: int
    admin_port: int
    access_log: Path


@contextlib.asynccontextmanager
async def running_envoy(
    directory: Path,
    gateway_port: int,
    limits: EdgeLimits | None = None,
    jwt: JwtSettings | None = None,
    traces: TraceSettings | None = None,
) -> AsyncIterator[Envoy]:
    """Start Envoy on free ports in front of the gateway on `gateway_port`; files go to `directory`."""
    certificates = ensure(directory, datetime.datetime.now(datetime.UTC))
    settings = EdgeSettings(
        descriptor=write_descriptor(directory / "edge.binpb"),
        gateways=(("127.0.0.1", gateway_port),),
        plain_port=0,
        tls=TlsFiles(certificates.server, certificates.server_key),
        access_log=str(directory / "access.log"),
        jwt=jwt,
        traces=traces,
        limits=limits or EdgeLimits(),
    )
    config = directory / "envoy.yaml"
    config.write_text(render_yaml(settings))
    async with _envoy(config) as admin_port:
        ports = await _listener_ports(admin_port)
        yield Envoy(certificates, ports["plain"], ports["tls"], admin_port, Path(settings.access_log))


@contextlib.asynccontextmanager
async def _envoy(config: Path) -> AsyncIterator[int]:
    arguments = ["-c", str(config), "--concurrency", "1", "--disable-hot-restart", "--file-flush-interval-msec", "50"]
    process = await asyncio.create_subprocess_exec(envoy_binary(), *arguments, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    drain: asyncio.Task[bytes] | None = None
    try:
        admin_port = await asyncio.wait_for(_until_started(process.stderr), _START_TIMEOUT_S)
        drain = asyncio.create_task(process.stderr.read())
        yield admin_port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if drain is not None:
            await drain


async def _until_started(log: asyncio.StreamReader) -> int:
    admin_port = 0
    seen = b""
    while line := await log.readline():
        seen += line
        if match := _ADMIN_LINE.search(line):
            admin_port = int(match[2])
        if b"starting workers" in line:
            return admin_port
    raise AssertionError(f"Envoy did not start: {seen.decode(errors='replace')}")


async def _listener_ports(admin_port: int) -> dict[str, int]:
    document = json.loads(await admin_get(admin_port, "/listeners?format=json"))
    return {one["name"]: one["local_address"]["socket_address"]["port_value"] for one in document["listener_statuses"]}


async def admin_get(admin_port: int, path: str) -> bytes:
    """Body of a GET on Envoy's admin listener."""
    async with httpx2.AsyncClient(timeout=10) as client:
        return (await client.get(f"http://127.0.0.1:{admin_port}{path}")).content


async def raw_exchange(port: int, sent: bytes) -> bytes:
    """Send bytes and return everything the peer answers until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 20) -> None:
    """Wait for an async condition that only polling can observe (a log file, a peer process)."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 - the condition lives in another process
            await asyncio.sleep(0.02)
