"""What the scheduler needs of the registry: consistent reading, and writes that are refused when their basis has changed."""

from collections.abc import Callable, Sequence
from typing import Protocol

from services.kit.etcd import Leadership
from services.scheduler.fleet import Assignment, Deployment, Fleet
from services.scheduler.plan import Change


class FleetStore(Protocol):
    """Registry access. Every method raises EtcdError when the registry does not answer; every write tells whether it was carried out."""

    async def read(self) -> Fleet:
        """The newest state of everything; no node is marked as lost."""

    async def apply(self, change: Change, leadership: Leadership) -> bool:
        """Makes one change as the leader; False when the leadership or the assignment is not what it was."""

    async def read_deployment(self, model: str) -> Deployment | None:
        """The stored deployment, None when there is none."""

    async def write_deployment(self, deployment: Deployment) -> bool:
        """Stores it if the stored revision is still `deployment.revision`."""

    async def delete_deployment(self, deployment: Deployment) -> bool:
        """Deletes it if the stored revision is still `deployment.revision`."""

    async def write_assignment(self, assignment: Assignment) -> bool:
        """Replaces the assignment if the stored revision is still `assignment.revision`."""

    async def cordon(self, node_id: str, since_unix_ms: int) -> None:
        """Marks the node so that it gets no new replicas."""

    async def uncordon(self, node_id: str) -> None:
        """Takes the mark away."""

    async def read_decisions(self, model: str) -> list[str]:
        """The kept decisions on a model, newest last."""

    async def write_decisions(self, model: str, sentences: Sequence[str], leadership: Leadership) -> bool:
        """Replaces the kept decisions as the leader."""

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Calls `on_change` in the event loop whenever something in the fleet may have changed, until cancelled."""
