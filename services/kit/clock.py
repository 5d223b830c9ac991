"""Time as a dependency, so that policies and tests decide what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def monotonic(self) -> float:
        """Seconds that only grow; for durations."""

    def unix_ms(self) -> int:
        """Milliseconds since 1970 in UTC; for records and deadlines that cross processes."""


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """See Clock."""
        return time.monotonic()

    def unix_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000
