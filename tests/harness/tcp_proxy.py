"""A TCP proxy on loopback that can be cut: the way to part one client from a server that goes on serving others."""

from __future__ import annotations

import asyncio
import contextlib

from tests.harness.ports import free_port


class TcpProxy:
    """Forwards connections to ``target`` ("host:port") while it is whole; new ones are left alone while ``gate`` is not set."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._port = free_port()
        self._connections: set[asyncio.Task[None]] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def num_connections(self) -> int:
        return len(self._connections)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def mend(self) -> None:
        """Listens, on the same port each time."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def cut(self) -> None:
        """Closes the listener and every connection, and waits until they are gone."""
        if self._server is not None:
            self._server.close()
            connections = list(self._connections)
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        upstream: asyncio.StreamWriter | None = None
        try:
            await self.gate.wait()
            up_reader, upstream = await asyncio.open_connection(*self._target)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, upstream))
                tasks.create_task(_pump(up_reader, writer))
        except (OSError, asyncio.CancelledError, BaseExceptionGroup):
            pass
        finally:
            self._connections.discard(task)
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()
                    with contextlib.suppress(OSError):
                        await end.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("one side has closed")
