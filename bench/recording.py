"""One streamed answer as it came off the wire, and what it says: when each token arrived, and the server's own count of tokens.

Pieces are only kept while the load runs and read afterwards, so that the client takes as little of the shared cores as it can.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Recording:
    """Raw pieces of one HTTP/1.1 response with the second at which each arrived (monotonic)."""

    sent_s: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    failure: str = ""
    """Why there is no whole response; empty when there is one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a recording says. Times are seconds since the request was sent."""

    arrivals_s: tuple[float, ...] = ()
    """One per chunk that brought text."""
    output_tokens: int = 0
    """The server's own count."""
    cached_tokens: int = 0
    failure: str = ""
    text: str = ""

    @property
    def is_ok(self) -> bool:
        return not self.failure


def read_answer(recording: Recording) -> Answer:
    """What was answered; a response that is no complete stream of completions has its failure set."""
    if recording.failure:
        return Answer(failure=recording.failure)
    raw = b"".join(piece for _, piece in recording.pieces)
    head, _, _ = raw.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].split(b" ")[1:2]
    if status != [b"200"]:
        return Answer(failure=f"status {b''.join(status).decode()}: {raw[-300:].decode(errors='replace')}")
    try:
        return _read_events(list(_events(recording, len(head) + 4, is_chunked(head))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Answer(failure=f"unreadable stream: {error!r}")


def is_chunked(head: bytes) -> bool:
    """Whether the body is in HTTP/1.1's chunked coding (RFC 9112, 7.1)."""
    return any(line.replace(b" ", b"").lower() == b"transfer-encoding:chunked" for line in head.split(b"\r\n"))


def _events(recording: Recording, skip: int, chunked: bool) -> Iterator[tuple[float, bytes]]:
    """The stream's `data:` lines, each with the time at which its last byte came."""
    body = _Dechunker() if chunked else None
    pending = b""
    for at, piece in recording.pieces:
        if skip >= len(piece):
            skip -= len(piece)
            continue
        data, skip = piece[skip:], 0
        *lines, pending = (pending + (body.feed(data) if body else data)).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield at - recording.sent_s, line[5:].strip()


class _Dechunker:
    """Undoes chunked coding piece by piece."""

    def __init__(self) -> None:
        self._pending = b""
        self._left = 0
        """Bytes of the current chunk still to come, its closing CRLF included."""

    def feed(self, data: bytes) -> bytes:
        self._pending += data
        out = []
        while self._pending:
            if self._left:
                taken, self._pending = self._pending[: self._left], self._pending[self._left :]
                out.append(taken[: max(0, self._left - 2)])
                self._left -= len(taken)
                continue
            line, found, rest = self._pending.partition(b"\r\n")
            if not found:
                break
            size = int(line.partition(b";")[0] or b"0", 16)
            self._pending, self._left = (rest, size + 2) if size else (b"", 0)
        return b"".join(out)


def _read_events(events: list[tuple[float, bytes]]) -> Answer:
    arrivals, texts = [], []
    usage: dict[str, Any] = {}
    for at, data in events:
        if data == b"[DONE]":
            break
        message: dict[str, Any] = json.loads(data)
        if message.get("error"):
            return Answer(failure=str(message["error"])[:300])
        usage = message.get("usage") or usage
        for choice in message.get("choices") or ():
            if choice.get("text") or not choice.get("finish_reason"):
                arrivals.append(at)
                texts.append(choice.get("text") or "")
    else:
        return Answer(failure=f"the stream broke off after {len(arrivals)} chunks")
    if not arrivals or "completion_tokens" not in usage:
        return Answer(failure="no text or no usage in the stream")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Answer(tuple(arrivals), int(usage["completion_tokens"]), int(cached), text="".join(texts))
