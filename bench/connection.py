"""A kept-alive HTTP/1.1 connection that records streamed answers; it does nothing else, to leave the cores to the servers."""

import asyncio
import contextlib
import ipaddress
import json
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from bench.recording import Recording, is_chunked

_LAST_CHUNK = b"\r\n0\r\n\r\n"
_CONNECT_S = 10


@dataclass(frozen=True, slots=True)
class Target:
    """Where completions are asked for. ValueError unless the address is one of this machine's loopback addresses."""

    base_url: str
    """Scheme, host and port only."""
    model: str
    api_key: str = field(default="", repr=False)
    ca: Path | None = None
    """Certificate authority of an https server."""

    def __post_init__(self) -> None:
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not ipaddress.ip_address(url.hostname or "").is_loopback:
            raise ValueError(f"{self.base_url} is not http(s)://LOOPBACK-ADDRESS:PORT")

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def port(self) -> int:
        url = urlsplit(self.base_url)
        return url.port or (443 if url.scheme == "https" else 80)

    def context(self) -> ssl.SSLContext | None:
        """None for a server without TLS."""
        if not self.base_url.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def request(self, prompt: list[int] | str, max_tokens: int) -> bytes:
        """One request for a greedy streamed completion of exactly `max_tokens` tokens."""
        body: dict[str, Any] = {"model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        content = json.dumps(body).encode()
        bearer = f"Authorization: Bearer {self.api_key}\r\n" if self.api_key else ""
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n{bearer}"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class _Receiver(asyncio.Protocol):
    """Stamps pieces of the response in flight and says when its last one has come."""

    def __init__(self) -> None:
        self.is_lost = False
        self._recording: Recording | None = None
        self._done: asyncio.Future[None] | None = None
        self._bytes_left: int | None = None
        """Of a body whose length was announced."""
        self._tail = b""
        """The last bytes of the response so far, as many as its end in chunked coding has."""

    def expect(self) -> tuple[Recording, asyncio.Future[None]]:
        self._recording, self._bytes_left, self._tail = Recording(time.perf_counter()), None, b""
        self._done = asyncio.get_running_loop().create_future()
        return self._recording, self._done

    def data_received(self, data: bytes) -> None:
        if self._recording is None:
            return
        self._recording.pieces.append((time.perf_counter(), data))
        if len(self._recording.pieces) == 1:
            self._bytes_left = _announced_bytes(data)
        elif self._bytes_left is not None:
            self._bytes_left -= len(data)
        self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
        if self._tail == _LAST_CHUNK if self._bytes_left is None else self._bytes_left <= 0:
            self._finish("")

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._finish(f"connection lost: {exc!r}")

    def _finish(self, failure: str) -> None:
        if self._done is not None and not self._done.done() and self._recording is not None:
            self._recording.failure = failure
            self._done.set_result(None)


def _announced_bytes(first_piece: bytes) -> int | None:
    """Bytes of the body still to come after the first piece; None when its end shows otherwise."""
    head, found, body = first_piece.partition(b"\r\n\r\n")
    if not found or is_chunked(head):
        return None
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:]) - len(body)
    return None


class Connection:
    """One connection to a target, opened anew after a failure. One request at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._context = target.context()
        self._transport: asyncio.Transport | None = None
        self._receiver = _Receiver()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    async def ask(self, request: bytes, timeout_s: float) -> Recording:
        """Send and record; never raises for what the server or the network does, the recording then says what happened.

        A request on a kept connection that the server had just closed is sent again, as every HTTP client does (RFC 9112, 9.3.1).
        """
        was_open = self._is_open
        recording = await self._ask_once(request, timeout_s)
        if was_open and self._receiver.is_lost and not recording.pieces:
            return await self._ask_once(request, timeout_s)
        return recording

    async def _ask_once(self, request: bytes, timeout_s: float) -> Recording:
        try:
            transport = await self._open()
        except (OSError, TimeoutError) as error:
            return Recording(time.perf_counter(), failure=f"no connection: {error!r}")
        recording, done = self._receiver.expect()
        transport.write(request)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done, timeout_s)
        if done.cancelled():
            recording.failure = f"no end of the answer within {timeout_s} s"
        if recording.failure:
            self._close()
        return recording

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._receiver.is_lost

    async def _open(self) -> asyncio.Transport:
        if self._transport is None or self._receiver.is_lost:
            opening = asyncio.get_running_loop().create_connection(_Receiver, self._target.host, self._target.port, ssl=self._context)
            self._transport, self._receiver = await asyncio.wait_for(opening, _CONNECT_S)
        assert self._transport is not None
        return self._transport

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = None
