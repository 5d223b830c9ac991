"""The router's side of one Dispatch stream: answers on their way to one gateway."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from services.kit.errors import InferwayError
from services.router.want import Answer


class GatewayStream:
    """Answers in order, for one reader. ``stream_id`` is unique in the process and owns the stream's grants.

    The backlog is bounded by ``wait_for_room``: nobody reads another want of this gateway while ``max_backlog`` answers are unread.
    """

    def __init__(self, stream_id: int, gateway_id: str, max_backlog: int) -> None:
        self.stream_id = stream_id
        self.gateway_id = gateway_id
        self._max_backlog = max_backlog
        self._answers: deque[Answer] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self._error: InferwayError | None = None

    def push(self, answer: Answer) -> None:
        """Queues an answer; dropped when the stream is closed."""
        if not self._closed:
            self._answers.append(answer)
            self._changed.set()

    def close(self, error: InferwayError | None = None) -> None:
        """Ends the stream after the answers that are queued, with ``error`` if there is one. The first close counts."""
        if not self._closed:
            self._closed, self._error = True, error
            self._changed.set()

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._closed

    async def wait_for_room(self) -> None:
        """Returns once fewer than ``max_backlog`` answers are unread, or the stream is closed."""
        while len(self._answers) >= self._max_backlog and not self._closed:
            await self._wait()

    async def answers(self) -> AsyncGenerator[Answer, None]:
        """All answers until the close; raises the close's error."""
        while True:
            while self._answers:
                yield self._answers.popleft()
                self._changed.set()
            if self._closed:
                break
            await self._wait()
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
