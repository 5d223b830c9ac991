"""One timer that can be set again, so that waiting costs nothing and needs no polling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


class LoopAlarm:
    """Rings at a moment of the event loop's clock (monotonic seconds). ``run`` has to be running for it to ring."""

    def __init__(self) -> None:
        self._when: float | None = None
        self._changed = asyncio.Event()

    def set(self, when: float | None) -> None:
        """Replaces the moment; None switches the alarm off."""
        if when != self._when:
            self._when = when
            self._changed.set()

    async def run(self, ring: Callable[[], None]) -> None:
        """Calls ``ring`` at each moment that is set, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            if self._when is not None and self._when <= loop.time():
                self._when = None
                ring()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._when):
                    await self._changed.wait()
