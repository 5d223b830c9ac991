"""All instruments of the node agent."""

from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.engine.node.launcher import ProcessEnd
from services.engine.node.order import Phase, SlotStatus


class NodeMetrics:
    """Replica labels are bounded by the slots that a node was ever given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._phases = Gauge("inferway_node_replicas", "Replica slots, by phase", ("phase",), registry=registry)
        self._restarts = Gauge(
            "inferway_node_replica_restarts", "Times that a replica of the slot was started again", ("replica",), registry=registry
        )
        self._shown: set[str] = set()
        self._ends = Counter("inferway_node_replica_ends", "Ends that nobody ordered, by kind", ("replica", "kind"), registry=registry)

    def observe(self, statuses: Sequence[SlotStatus]) -> None:
        """Shows what happens in the slots."""
        tally = Tally(status.phase for status in statuses)
        for phase in Phase:
            self._phases.labels(phase.value).set(tally[phase])
        for status in statuses:
            self._restarts.labels(status.replica_id).set(status.num_restarts)
        present = {status.replica_id for status in statuses}
        for replica_id in self._shown - present:
            self._restarts.remove(replica_id)
        self._shown = present

    def count_end(self, replica_id: str, end: ProcessEnd) -> None:
        """A replica ended by itself or for bad health."""
        self._ends.labels(replica_id, end.kind).inc()
