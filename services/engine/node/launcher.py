"""The seams of a slot: how a replica process comes to life, and how its health is asked."""

from dataclasses import dataclass
from typing import Protocol

from services.engine.node.order import Order


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a replica ended. `kind` is one of exit, signal, launch, not_ready, unhealthy; `sentence` is for people."""

    kind: str
    sentence: str


class ReplicaProcess(Protocol):
    """A replica process that was started; `address` is host:port of its gRPC server."""

    @property
    def address(self) -> str:
        """host:port."""

    @property
    def pid(self) -> int:
        """Process id."""

    async def wait(self) -> ProcessEnd:
        """Waits for its end and says how it came. May be cancelled and called again, also after the end."""

    def terminate(self) -> None:
        """Asks it to finish its work and to end; no effect when it has ended."""

    def kill(self) -> None:
        """Ends it and whatever it started, at once; no effect when it has ended."""


class Launcher(Protocol):
    """Starts replica processes."""

    async def launch(self, order: Order) -> ReplicaProcess:
        """Starts one. LaunchError when that cannot be."""


class ReplicaClient(Protocol):
    """Talks to a replica; every call has a deadline of its own and none raises."""

    async def is_serving(self, address: str) -> bool:
        """True when the health service answers SERVING in time."""

    async def end_work(self, address: str) -> None:
        """Ends running work at once with an explicit error to those who wait for it, as far as the replica answers."""


class LaunchError(Exception):
    """A process cannot be started; the text says why."""
