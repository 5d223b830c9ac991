"""A clock that stands still until the test moves it, and waits that end only then."""

import asyncio
import heapq
import itertools


class ManualTiming:
    """Timing for tests. `advance` wakes what is due, in order, and lets everything run that follows from it."""

    def __init__(self, unix_ms: int = 1_700_000_000_000) -> None:
        self._now = 1000.0
        self._unix_ms = unix_ms
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, asyncio.Event]] = []

    def monotonic(self) -> float:
        return self._now

    def unix_ms(self) -> int:
        return self._unix_ms + round((self._now - 1000.0) * 1000)

    async def sleep(self, seconds: float) -> None:
        due = asyncio.Event()
        heapq.heappush(self._waiting, (self._now + seconds, next(self._numbers), due))
        await due.wait()

    async def advance(self, seconds: float) -> None:
        """Moves the clock, stopping at every moment at which something is due."""
        end = self._now + seconds
        await settle()
        while self._waiting and self._waiting[0][0] <= end:
            self._now, _, due = heapq.heappop(self._waiting)
            due.set()
            await settle()
        self._now = end
        await settle()


async def settle(rounds: int = 50) -> None:
    """Lets every task run until all of them wait."""
    for _ in range(rounds):
        await asyncio.sleep(0)
