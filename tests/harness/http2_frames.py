"""Just enough HTTP/2 (RFC 9113) and HPACK literals (RFC 7541) to send what no well-behaved client would."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS = 0x0, 0x1, 0x3, 0x4
_END_STREAM, _END_HEADERS = 0x1, 0x4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame: 9 bytes of header, then the payload."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def settings_frame() -> bytes:
    """Empty SETTINGS: the defaults."""
    return frame(SETTINGS, 0, 0, b"")


def headers_frame(stream: int, headers: Sequence[tuple[str, str]]) -> bytes:
    """Headers as literals without indexing and without Huffman coding; each name and value below 127 bytes."""
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)
    return frame(HEADERS, _END_HEADERS, stream, block)


def data_frame(stream: int, payload: bytes, *, end_stream: bool) -> bytes:
    """One DATA frame without padding."""
    return frame(DATA, _END_STREAM if end_stream else 0, stream, payload)


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Kind, stream and payload of the next frame."""
    head = await reader.readexactly(9)
    return head[3], int.from_bytes(head[5:9]), await reader.readexactly(int.from_bytes(head[:3]))


def _text(value: str) -> bytes:
    raw = value.encode()
    assert len(raw) < 127
    return bytes([len(raw)]) + raw
