"""When a node counts as lost: its registration has been gone, in a registry that answers, for longer than is forgiven."""

from collections.abc import Iterable


class LostNodes:
    """Remembers since when nodes are absent. A doubt about the registry starts every count anew: an outage of etcd loses no node."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._absent_since: dict[str, float] = {}

    def observe(self, absent: Iterable[str], now: float) -> frozenset[str]:
        """Takes what a good reading at monotonic time `now` shows as absent; returns the nodes that are lost by now."""
        self._absent_since = {node_id: self._absent_since.get(node_id, now) for node_id in absent}
        return frozenset(node_id for node_id, since in self._absent_since.items() if now - since >= self._grace_s)

    def forget(self) -> None:
        """The registry did not answer: what was absent may have been unable to register."""
        self._absent_since.clear()
