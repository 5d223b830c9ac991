"""Answers "is it ready?" for parts that are not our services: HTTP, and a Kafka broker that hands out metadata."""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable

Probe = Callable[[], Awaitable[bool]]

_TIMEOUT_S = 2.0
_METADATA_KEY, _METADATA_VERSION = 3, 1
_MAX_RESPONSE_BYTES = 1 << 20


def http(port: int, path: str, expect: bytes = b"") -> Probe:
    """Ready when GET answers 200 and, if given, the body contains `expect`."""

    async def probe() -> bool:
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
        answer = await _exchange(port, request, lambda reader: reader.read(_MAX_RESPONSE_BYTES))
        head, _, body = answer.partition(b"\r\n\r\n")
        return head.split(b"\r\n", 1)[0].split(b" ")[1:2] == [b"200"] and expect in body

    return probe


def kafka(port: int) -> Probe:
    """Ready when a Metadata request (KIP-4 wire format, version 1, no topics) names at least one broker."""

    async def probe() -> bool:
        client_id = b"inferway-probe"
        body = struct.pack(">hhih", _METADATA_KEY, _METADATA_VERSION, 1, len(client_id)) + client_id + struct.pack(">i", 0)
        answer = await _exchange(port, struct.pack(">i", len(body)) + body, _read_frame)
        if len(answer) < 8:
            return False
        num_brokers: int = struct.unpack_from(">i", answer, 4)[0]
        return num_brokers > 0

    return probe


async def is_listening(port: int) -> bool:
    """True when something accepts connections on the loopback `port`."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size: int = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(min(size, _MAX_RESPONSE_BYTES))


async def _exchange(port: int, request: bytes, read: Callable[[asyncio.StreamReader], Awaitable[bytes]]) -> bytes:
    """Send and read within the time-out; empty when nobody answers."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                await writer.drain()
                return await read(reader)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return b""
