"""What the node was told to run in one slot, and what it says about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    """What happens to the process of a slot."""

    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Order:
    """One assignment. `drain_deadline_unix_ms` counts only while draining."""

    replica_id: str
    model: str
    model_version: str = ""
    device_indexes: tuple[int, ...] = ()
    engine_settings: Mapping[str, str] = field(default_factory=dict)
    drain_timeout_s: int = 30
    draining: bool = False
    drain_deadline_unix_ms: int = 0

    def same_replica(self, other: "Order") -> bool:
        """True when both ask for the same process, draining or not."""
        return self._identity() == other._identity()

    def _identity(self) -> tuple[object, ...]:
        return self.replica_id, self.model, self.model_version, self.device_indexes, dict(self.engine_settings)


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """What the agent reports of one slot. `last_exit` is one sentence, empty when the process has not ended yet."""

    replica_id: str
    phase: Phase
    num_restarts: int = 0
    last_exit: str = ""
