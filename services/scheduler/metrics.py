"""All instruments of the scheduler."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.scheduler.fleet import Fleet
from services.scheduler.plan import Change, Plan


class SchedulerMetrics:
    """Figures of the leader; another scheduler shows none. Models are bounded by what operators deploy."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leading = Gauge("inferway_scheduler_leading", "1 while this process leads", registry=registry)
        self.failed_rounds = Counter("inferway_scheduler_failed_rounds", "Rounds without an answer of the registry", registry=registry)
        self.changes = Counter("inferway_scheduler_changes", "Changes of assignments, by kind", ("kind",), registry=registry)
        self.nodes = Gauge("inferway_scheduler_nodes", "Nodes, by state", ("state",), registry=registry)
        self.wanted = Gauge("inferway_scheduler_replicas_wanted", "Replicas that deployments want", ("model",), registry=registry)
        self.ready = Gauge("inferway_scheduler_replicas_ready", "Replicas that are ready", ("model",), registry=registry)
        self._shown: set[str] = set()
        self.unplaced = Gauge("inferway_scheduler_deployments_with_problem", "Deployments that cannot be placed in full", registry=registry)

    def count(self, change: Change) -> None:
        """One change was written."""
        self.changes.labels(type(change).__name__.lower()).inc()

    def observe(self, fleet: Fleet, plan: Plan) -> None:
        """Shows the snapshot of a round."""
        self.nodes.labels("registered").set(len(fleet.nodes))
        self.nodes.labels("absent").set(len(fleet.absent - fleet.lost))
        self.nodes.labels("lost").set(len(fleet.lost))
        self.nodes.labels("drained").set(len(fleet.cordoned))
        self.unplaced.set(len(plan.problems))
        for model, deployment in fleet.deployments.items():
            self.wanted.labels(model).set(deployment.num_replicas)
            self.ready.labels(model).set(sum(fleet.is_ready(each) for each in fleet.assignments if each.model == model))
        self._show_only(set(fleet.deployments))

    def forget(self) -> None:
        """This process leads no more: what it saw last is not the truth for long."""
        self.leading.set(0)
        self.unplaced.set(0)
        self.nodes.clear()
        self._show_only(set())

    def _show_only(self, models: set[str]) -> None:
        for model in self._shown - models:
            self.wanted.remove(model)
            self.ready.remove(model)
        self._shown = models
