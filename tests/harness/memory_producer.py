"""An EventProducer in memory that can be away, and that can lose what it acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.kit.events import EventsUnavailable, OutgoingRecord


class MemoryProducer:
    """``records`` is the log; while ``away`` every send fails; while ``hangs`` every send waits."""

    def __init__(self) -> None:
        self.records: list[OutgoingRecord] = []
        self.away = False
        self.hangs = False
        self.num_failed = 0

    async def send(self, records: Sequence[OutgoingRecord]) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            self.num_failed += 1
            raise EventsUnavailable("the broker is away")
        self.records += records

    async def close(self) -> None:
        """Nothing to give back."""
