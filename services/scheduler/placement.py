"""Placement: a pure function from a snapshot of the fleet to the changes that bring it closer to what is wanted.

Repeated with the outcome of its own changes it comes to rest. It never gives a node more replicas than the node allows, never drains a
replica that works before its replacement is ready (unless there is no room for both), and never moves work of a node that is merely away.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from services.scheduler.capacity import Capacity
from services.scheduler.fleet import Assignment, Deployment, Fleet, Phase
from services.scheduler.plan import Place, Plan, Remove, StartDrain

# The node agent kills a replica a moment after its deadline; only when nothing is heard of that is the slot given up.
REMOVAL_MARGIN_MS = 15_000


def make_plan(fleet: Fleet, now_unix_ms: int) -> Plan:
    """The changes to make now; equal inputs give equal plans."""
    planner = _Planner(fleet, now_unix_ms)
    planner.remove_finished()
    planner.drain_cordoned()
    for model in sorted({assignment.model for assignment in fleet.assignments} - fleet.deployments.keys()):
        planner.stop(planner.active(model), planner.lost(model), f"{model} is not deployed any more")
    for _, deployment in sorted(fleet.deployments.items()):
        planner.deploy(deployment)
    return planner.plan


class _Planner:
    def __init__(self, fleet: Fleet, now_unix_ms: int) -> None:
        self._fleet = fleet
        self._now_unix_ms = now_unix_ms
        self._capacity = Capacity(fleet)
        self._leaving: set[str] = set()
        self._taken = {assignment.replica_id for assignment in fleet.assignments} | fleet.replicas.keys()
        self.plan = Plan()

    def active(self, model: str) -> list[Assignment]:
        """Assignments that count: neither draining nor on a lost node."""
        return [each for each in self._staying(model) if each.node_id not in self._fleet.lost]

    def lost(self, model: str) -> list[Assignment]:
        """Assignments of lost nodes that were not told to drain."""
        return [each for each in self._staying(model) if each.node_id in self._fleet.lost]

    def remove_finished(self) -> None:
        """Draining assignments whose replica has ended, or whose time is over for good."""
        for assignment in self._fleet.assignments:
            if assignment.draining and (why := self._finish(assignment)):
                self._remove(assignment, why)

    def drain_cordoned(self) -> None:
        """Nodes that were drained keep nothing."""
        for assignment in self._fleet.assignments:
            if not assignment.draining and assignment.node_id in self._fleet.cordoned and assignment.node_id not in self._fleet.lost:
                self._drain(assignment, f"node {assignment.node_id} is drained")

    def stop(self, active: Iterable[Assignment], lost: Iterable[Assignment], why: str) -> None:
        """Drains what may be running and drops what cannot."""
        for assignment in active:
            self._drain(assignment, why)
        for assignment in lost:
            self._remove(assignment, why)

    def deploy(self, deployment: Deployment) -> None:
        """Brings one deployment closer to its number of replicas of its present version and settings."""
        active = self.active(deployment.model)
        current = [each for each in active if each.serves(deployment)]
        outdated = [each for each in active if not each.serves(deployment)]
        can_replace = bool(self._capacity.eligible(deployment))
        self._drain_surplus(deployment, current)
        drained = self._drain_outdated(deployment, current, outdated, can_replace)
        num_after = min(len(current), deployment.num_replicas) + len(outdated) - drained
        wanted = min(deployment.num_replicas - len(current), deployment.num_replicas + (1 if outdated else 0) - num_after)
        placed = self._place(deployment, max(0, wanted), num_after)
        if placed == 0 < wanted and can_replace:
            self._make_room(deployment, current, outdated)
        self._settle_lost(deployment, num_after + placed)
        if placed < wanted:
            left = wanted - placed
            have = "1 replica has" if left == 1 else f"{left} replicas have"
            self.plan.problems[deployment.model] = f"{have} no place: {self._capacity.refusal(deployment)}"

    def _drain_surplus(self, deployment: Deployment, current: list[Assignment]) -> None:
        staying = list(current)
        while len(staying) > deployment.num_replicas:
            victim = max(staying, key=self._dispensability(staying))
            staying.remove(victim)
            self._drain(victim, f"{deployment.model} wants {deployment.num_replicas} and has {len(staying) + 1}")

    def _drain_outdated(self, deployment: Deployment, current: list[Assignment], outdated: list[Assignment], can_replace: bool) -> int:
        """Replicas of an earlier version or with earlier settings go when they are of no use or the others suffice."""
        useless = [each for each in outdated if not self._fleet.is_ready(each)] if can_replace else []
        useful = sorted((each for each in outdated if each not in useless), key=lambda each: -each.slot)
        num_ready = sum(self._fleet.is_ready(each) for each in current) + len(useful)
        spare = useful[: max(0, num_ready - deployment.num_replicas)]
        for assignment in (*useless, *spare):
            self._drain(assignment, f"generation {deployment.generation} of {deployment.model} replaces its version or settings")
        return len(useless) + len(spare)

    def _make_room(self, deployment: Deployment, current: list[Assignment], outdated: list[Assignment]) -> None:
        """No room for old and new side by side: one old replica goes first, if nothing else is on its way already."""
        mine = [each for each in self._fleet.assignments if each.model == deployment.model]
        waiting = any(each.draining or each.replica_id in self._leaving for each in mine)
        if waiting or not all(self._fleet.is_ready(each) for each in current):
            return
        eligible = {node.node_id for node in self._capacity.eligible(deployment)}
        for assignment in sorted(outdated, key=lambda each: -each.slot):
            if assignment.node_id in eligible:
                self._drain(assignment, f"generation {deployment.generation} of {deployment.model} needs its room")
                return

    def _place(self, deployment: Deployment, count: int, num_before: int) -> int:
        for placed in range(count):
            node = self._capacity.choose(deployment)
            if node is None:
                return placed
            why = (
                f"{deployment.model} wants {deployment.num_replicas} and has {num_before + placed}; "
                f"{node.node_id} runs {self._capacity.load(node)} and keeps the replicas most apart"
            )
            assignment = Assignment(
                replica_id=self._next_slot(deployment.model),
                node_id=node.node_id,
                model=deployment.model,
                model_version=deployment.model_version,
                device_indexes=self._capacity.devices_for(node),
                engine_settings=deployment.engine_settings,
                drain_timeout_s=deployment.drain_timeout_s,
            )
            self._capacity.hold(assignment)
            self.plan.changes.append(Place(assignment, why))
        return count

    def _settle_lost(self, deployment: Deployment, num_alive: int) -> None:
        """Assignments of lost nodes stay only where nothing could take their place: their node may come back."""
        lost = sorted(self.lost(deployment.model), key=lambda each: each.slot)
        for assignment in lost[max(0, deployment.num_replicas - num_alive) :]:
            self._remove(assignment, f"node {assignment.node_id} is lost")

    def _finish(self, assignment: Assignment) -> str:
        if assignment.node_id in self._fleet.lost:
            return f"node {assignment.node_id} is lost"
        if self._fleet.process_of(assignment).phase is Phase.STOPPED:
            return "it has drained and ended"
        if self._now_unix_ms > assignment.drain_deadline_unix_ms + REMOVAL_MARGIN_MS:
            return f"its drain deadline has passed and node {assignment.node_id} has not reported its end"
        return ""

    def _drain(self, assignment: Assignment, why: str) -> None:
        self._leaving.add(assignment.replica_id)
        deadline = self._now_unix_ms + self._fleet.drain_timeout_s(assignment) * 1000
        self.plan.changes.append(StartDrain(replace(assignment, draining=True, drain_deadline_unix_ms=deadline), why))

    def _remove(self, assignment: Assignment, why: str) -> None:
        self._leaving.add(assignment.replica_id)
        self._capacity.release(assignment)
        self.plan.changes.append(Remove(assignment, why))

    def _staying(self, model: str) -> list[Assignment]:
        return [
            each for each in self._fleet.assignments if each.model == model and not each.draining and each.replica_id not in self._leaving
        ]

    def _next_slot(self, model: str) -> str:
        number = 0
        while (replica_id := f"{model}-{number}") in self._taken:
            number += 1
        self._taken.add(replica_id)
        return replica_id

    def _dispensability(self, staying: list[Assignment]) -> Callable[[Assignment], tuple[bool, int, int, int, str]]:
        """Order of leaving: not ready, crowded failure domain, crowded node, highest slot."""
        domains = Counter(self._domain(each) for each in staying)
        nodes = Counter(each.node_id for each in staying)

        def key(each: Assignment) -> tuple[bool, int, int, int, str]:
            return not self._fleet.is_ready(each), domains[self._domain(each)], nodes[each.node_id], each.slot, each.node_id

        return key

    def _domain(self, assignment: Assignment) -> str:
        node = self._fleet.nodes.get(assignment.node_id)
        return node.domain if node is not None else f"node {assignment.node_id}"
