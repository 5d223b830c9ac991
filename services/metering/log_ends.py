"""Where the log of each partition ended when it was last looked at."""

from collections.abc import Mapping


class LogEnds:
    """End offsets by (topic, partition); written by the ingest, read by whoever shows the lag."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], int] = {}

    def update(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Replaces what is known of these partitions."""
        self._ends.update(ends)

    def snapshot(self) -> dict[tuple[str, int], int]:
        """A copy."""
        return dict(self._ends)
