"""The scheduler's store in memory, with the registry's rules: revisions guard writes, and a leadership that is over writes nothing."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from services.kit.etcd import EtcdUnavailable, Leadership
from services.scheduler.fleet import Assignment, Deployment, Fleet, Node, Replica
from services.scheduler.plan import Change, Place, Remove


class Reign:
    """Stands for a Leadership: valid until the test ends it."""

    def __init__(self, token: int = 1) -> None:
        self.token = token
        self.lost = asyncio.Event()

    async def resign(self) -> None:
        self.lost.set()


class MemoryFleetStore:
    """FleetStore of one test. `away` makes every call fail; `before_write` runs once before the next guarded write."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.replicas: dict[str, Replica] = {}
        self.deployments: dict[str, Deployment] = {}
        self.assigned: dict[str, Assignment] = {}
        self.cordoned: set[str] = set()
        self.decisions: dict[str, list[str]] = {}
        self.away = False
        self.before_write: Callable[[], None] | None = None
        self._revision = 0

    async def read(self) -> Fleet:
        self._check()
        return Fleet(dict(self.deployments), dict(self.nodes), tuple(self.assigned.values()), dict(self.replicas), frozenset(self.cordoned))

    async def apply(self, change: Change, leadership: Leadership) -> bool:
        if leadership.lost.is_set():
            return False
        assignment = change.assignment
        if isinstance(change, Remove):
            self._check()
            return self.assigned.pop(assignment.replica_id, None) is not None
        return await self.write_assignment(replace(assignment, revision=0) if isinstance(change, Place) else assignment)

    async def read_deployment(self, model: str) -> Deployment | None:
        self._check()
        return self.deployments.get(model)

    async def write_deployment(self, deployment: Deployment) -> bool:
        self._check()
        stored = self.deployments.get(deployment.model)
        if (stored.revision if stored else 0) != deployment.revision:
            return False
        self.put_deployment(deployment)
        return True

    async def delete_deployment(self, deployment: Deployment) -> bool:
        self._check()
        stored = self.deployments.get(deployment.model)
        if stored is None or stored.revision != deployment.revision:
            return False
        del self.deployments[deployment.model]
        return True

    async def write_assignment(self, assignment: Assignment) -> bool:
        self._check()
        stored = self.assigned.get(assignment.replica_id)
        if (stored.revision if stored else 0) != assignment.revision:
            return False
        self.put_assignment(assignment)
        return True

    async def cordon(self, node_id: str, since_unix_ms: int) -> None:
        self._check()
        self.cordoned.add(node_id)

    async def uncordon(self, node_id: str) -> None:
        self._check()
        self.cordoned.discard(node_id)

    async def read_decisions(self, model: str) -> list[str]:
        self._check()
        return list(self.decisions.get(model, []))

    async def write_decisions(self, model: str, sentences: Sequence[str], leadership: Leadership) -> bool:
        self._check()
        if leadership.lost.is_set():
            return False
        self.decisions[model] = list(sentences)
        return True

    async def follow(self, on_change: Callable[[], None]) -> None:
        await asyncio.Event().wait()

    def put_deployment(self, deployment: Deployment) -> None:
        """Writes as somebody else would."""
        self._revision += 1
        self.deployments[deployment.model] = replace(deployment, revision=self._revision)

    def put_assignment(self, assignment: Assignment) -> None:
        """Writes as somebody else would."""
        self._revision += 1
        self.assigned[assignment.replica_id] = replace(assignment, revision=self._revision)

    def _check(self) -> None:
        if self.away:
            raise EtcdUnavailable("no answer")
        hook, self.before_write = self.before_write, None
        if hook is not None:
            hook()
