"""The load of this replica, told to whoever watches it: at once, soon after a change, and every second without one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from services.engine.batch_load import BatchLoad

MIN_GAP_S = 0.05
MAX_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """Load at one moment; see WatchLoadResponse in engine.proto."""

    batch: BatchLoad
    num_starting: int
    """Attempts that the step thread has not seen yet; they wait, too."""
    num_blocks: int
    max_num_sequences: int
    heartbeat_age_s: float
    draining: bool
    output_tokens_total: int
    prompt_tokens_total: int

    @property
    def num_waiting(self) -> int:
        """Attempts that wait inside the engine."""
        return self.batch.num_waiting + self.num_starting


class LoadFeed:
    """Lets any number of watchers follow the load. Lives in the event loop."""

    def __init__(self, measure: Callable[[], ReplicaLoad]) -> None:
        self._measure = measure
        self._last: tuple[int, ...] | None = None
        self._changed = asyncio.Event()
        self._closed = False

    def refresh(self) -> None:
        """Something happened: wake the watchers if it is news to them."""
        news = _news(self._measure())
        if news != self._last:
            self._last = news
            self._wake()

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._wake()

    async def watch(self) -> AsyncIterator[ReplicaLoad]:
        """The load now, then as it changes, until the feed is closed."""
        while not self._closed:
            changed = self._changed
            yield self._measure()
            await asyncio.sleep(MIN_GAP_S)
            try:
                async with asyncio.timeout(MAX_GAP_S - MIN_GAP_S):
                    await changed.wait()
            except TimeoutError:
                continue

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _news(load: ReplicaLoad) -> tuple[int, ...]:
    """What is worth a message at once: running sequences take blocks at every step, of which each hundredth of all counts."""
    batch = load.batch
    hundredths = 100 * batch.num_used_blocks // max(1, load.num_blocks)
    return batch.num_running, load.num_waiting, batch.num_waiting_tokens, hundredths, load.draining
