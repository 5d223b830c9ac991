"""What a decision is made from: immutable facts about the replicas of one model at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ReplicaState(Enum):
    """What the registry says about a replica."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """The registry's word on one replica; limits are 0 where it says nothing."""

    replica_id: str
    model: str
    model_version: str
    address: str
    incarnation: str
    state: ReplicaState
    block_size: int = 0
    num_blocks: int = 0
    max_num_sequences: int = 0
    max_context_tokens: int = 0
    node_id: str = ""
    metrics_address: str = ""
    ready_unix_ms: int = 0
    runner: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """The engine's word on its load, all gateways and routers together."""

    num_running: int = 0
    num_waiting: int = 0
    num_used_blocks: int = 0
    num_blocks: int = 0
    max_num_sequences: int = 0
    heartbeat_age_s: float = 0.0
    draining: bool = False

    @property
    def num_sequences(self) -> int:
        """Attempts inside the engine."""
        return self.num_running + self.num_waiting


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """One replica, the registry, the engine and this router's own grants reconciled."""

    facts: ReplicaFacts
    connected: bool
    load: Load
    load_age_s: float
    """Seconds since the engine's last word; infinite before the first."""
    is_suspect: bool
    """A gateway lost it a moment ago and nothing fresh was heard since."""
    num_granted: int
    """Open grants of this router on this incarnation."""
    num_in_flight: int
    """Sequences that run, wait or are on their way; grants of this router and the engine's word reconciled."""
    num_taken_blocks: int
    """KV blocks in use or reserved."""
    last_pick: int
    """Grows with every pick of any replica; 0 when it was never picked."""

    @property
    def max_num_sequences(self) -> int:
        """Most sequences in one step; at least 1."""
        return max(1, self.load.max_num_sequences or self.facts.max_num_sequences)

    @property
    def num_blocks(self) -> int:
        """KV blocks in total; 0 when unknown."""
        return self.load.num_blocks or self.facts.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """KV blocks neither in use nor reserved, never negative."""
        return max(0, self.num_blocks - self.num_taken_blocks)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All known replicas of one model, by id. ``complete`` is False until the registry has been read once."""

    model: str
    replicas: tuple[ReplicaSnapshot, ...]
    complete: bool = True
