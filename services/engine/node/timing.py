"""Time and waiting as one dependency of the node agent, so that tests decide both."""

import asyncio
from typing import Protocol

from services.kit.clock import Clock, SystemClock


class Timing(Clock, Protocol):
    """A clock that can also wait."""

    async def sleep(self, seconds: float) -> None:
        """Returns after that time on this clock."""


class SystemTiming(SystemClock):
    """The machine's clock and the event loop's timers."""

    async def sleep(self, seconds: float) -> None:
        """See Timing."""
        await asyncio.sleep(seconds)
