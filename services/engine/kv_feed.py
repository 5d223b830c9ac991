"""Changes of the prefix cache, told to whoever watches them: in order, numbered, and again from a number on as far as they are kept."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from services.engine.kv_events import Cleared, KvEvent, Removed, Stored

MAX_KEPT_MESSAGES = 1024


@dataclass(frozen=True, slots=True)
class KvMessage:
    """Changes that took effect together."""

    sequence_number: int
    events: Sequence[KvEvent]


class KvFeed:
    """Lets any number of watchers follow the cache. Lives in the event loop; `take` never waits for a watcher.

    Numbers grow by one per message and begin above `base`, which is higher at every start of the replica, so that a number of an earlier
    life is told from one of this. A watcher that wants what is not kept (any more), or has fallen behind by more than `max_kept` messages,
    gets everything that is cached now after a Cleared, under the number of the last message; then the changes go on.
    """

    def __init__(self, base: int, max_kept: int = MAX_KEPT_MESSAGES) -> None:
        self._last = base
        self._kept: deque[KvMessage] = deque(maxlen=max_kept)
        self._parents: dict[bytes, bytes] = {}
        """What is cached: parents by hash, a parent before its children."""
        self._changed = asyncio.Event()
        self._closed = False

    def take(self, events: Sequence[KvEvent]) -> None:
        """Number and keep the changes of a step, and wake the watchers."""
        if not events:
            return
        for event in events:
            self._apply(event)
        self._last += 1
        self._kept.append(KvMessage(self._last, events))
        self._wake()

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._wake()

    async def watch(self, start: int) -> AsyncIterator[KvMessage]:
        """Messages from number `start` on (0: a snapshot first), until the feed is closed."""
        while not self._closed:
            changed = self._changed
            if start != self._last + 1:
                message = self._message(start)
                yield message
                start = message.sequence_number + 1
            else:
                await changed.wait()

    def _message(self, number: int) -> KvMessage:
        """The kept message of this number, or else a snapshot."""
        first = self._last + 1 - len(self._kept)
        if first <= number <= self._last:
            return self._kept[number - first]
        return KvMessage(self._last, [Cleared(), *_runs(self._parents)])

    def _apply(self, event: KvEvent) -> None:
        match event:
            case Stored(parent, hashes):
                self._parents.update(zip(hashes, (parent, *hashes), strict=False))
            case Removed(hashes):
                for block_hash in hashes:
                    del self._parents[block_hash]
            case Cleared():
                self._parents.clear()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _runs(parents: dict[bytes, bytes]) -> Iterator[Stored]:
    """Everything that is cached, in runs of blocks of which each is the parent of the next."""
    run: list[bytes] = []
    for block_hash, parent in parents.items():
        if run and parent != run[-1]:
            yield Stored(parents[run[0]], tuple(run))
            run = []
        run.append(block_hash)
    if run:
        yield Stored(parents[run[0]], tuple(run))
