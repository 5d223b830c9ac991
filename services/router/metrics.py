"""All instruments of the router."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.kit.metrics import LATENCY_BUCKETS_S
from services.router.filters import is_draining
from services.router.replica_view import ReplicaView
from services.router.snapshot import ReplicaSnapshot

_STATES = ("ready", "starting", "draining", "disconnected")
_MAX_MODELS = 64


class RouterMetrics:
    """Implements admission's Observer. Labels are bounded: models beyond the first 64 count as "other"."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._models: set[str] = set()
        self._depth = Gauge("inferway_router_queue_depth", "Wants that wait for a replica", ("model",), registry=registry)
        self._wait = Histogram(
            "inferway_router_queue_wait_seconds", "Time from want to grant", ("model",), buckets=LATENCY_BUCKETS_S, registry=registry
        )
        self._first_token = Histogram(
            "inferway_router_first_token_seconds",
            "Time from want to first token, queue included",
            ("model",),
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._rejects = Counter("inferway_router_rejects", "Wants that got no replica", ("model", "reason"), registry=registry)
        self._replicas = Gauge("inferway_router_replicas", "Known replicas by state", ("model", "state"), registry=registry)
        self._in_flight = Gauge("inferway_router_in_flight", "Sequences on all replicas of a model", ("model",), registry=registry)

    def granted(self, model: str, waited_s: float) -> None:
        """See admission.Observer; the histogram's count is the number of grants."""
        self._wait.labels(self._label(model)).observe(waited_s)

    def rejected(self, model: str, reason: str) -> None:
        """See admission.Observer."""
        self._rejects.labels(self._label(model), reason).inc()

    def queue_depth(self, model: str, num_waiting: int) -> None:
        """See admission.Observer."""
        self._depth.labels(self._label(model)).set(num_waiting)

    def first_token(self, model: str, since_want_s: float) -> None:
        """See admission.Observer."""
        self._first_token.labels(self._label(model)).observe(since_want_s)

    def follow(self, view: ReplicaView) -> None:
        """Keeps the gauges of replicas equal to the view."""

        def count(model: str | None) -> None:
            if model is not None:
                self._count_replicas(model, view.snapshot(model).replicas)

        view.subscribe(count)

    def _count_replicas(self, model: str, replicas: tuple[ReplicaSnapshot, ...]) -> None:
        states = [_state(replica) for replica in replicas]
        for state in _STATES:
            self._replicas.labels(self._label(model), state).set(states.count(state))
        self._in_flight.labels(self._label(model)).set(sum(replica.num_in_flight for replica in replicas))

    def _label(self, model: str) -> str:
        if model not in self._models and len(self._models) < _MAX_MODELS:
            self._models.add(model)
        return model if model in self._models else "other"


def _state(replica: ReplicaSnapshot) -> str:
    if is_draining(replica):
        return "draining"
    if replica.facts.state.value == "starting":
        return "starting"
    return "ready" if replica.connected else "disconnected"
