"""Keeps the ledger's blocking calls off the event loop: one thread per connection."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from services.metering.ledger.interface import Ledger

T = TypeVar("T")


class LedgerThread:
    """Owns one ledger object and the one thread that calls it."""

    def __init__(self, open_ledger: Callable[[], Ledger], name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"ledger-{name}")
        self._ledger = self._executor.submit(open_ledger).result()

    async def call(self, question: Callable[[Ledger], T]) -> T:
        """Runs `question(ledger)` in the thread; raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, question, self._ledger)

    def close(self) -> None:
        """Waits for the running call and frees the database."""
        self._executor.submit(self._ledger.close).result()
        self._executor.shutdown()
