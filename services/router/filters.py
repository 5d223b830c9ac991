"""Which replicas may get a want at all: pure predicates in a fixed order, each with a name that Explain shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from services.router.reservation import blocks_needed
from services.router.snapshot import ReplicaSnapshot, ReplicaState
from services.router.want import Want


class Effect(Enum):
    """What an exclusion means for the want."""

    LASTING = "lasting"
    """This replica will never serve this want."""
    PASSING = "passing"
    """It may serve it again in a moment; nothing about the want is wrong."""
    ROOM = "room"
    """It serves such wants and has no room now."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One reason to exclude a replica; ``admits`` is pure."""

    name: str
    effect: Effect
    admits: Callable[[ReplicaSnapshot, Want], bool]


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """Bounds of the filters, in seconds and tokens."""

    max_load_age_s: float
    max_heartbeat_age_s: float
    max_reserved_output_tokens: int


def standard_filters(limits: FilterLimits) -> tuple[Filter, ...]:
    """All filters. Lasting ones come first, so that a want that nothing can ever serve is recognised as such."""
    return (
        Filter("version", Effect.LASTING, _has_version),
        Filter("context", Effect.LASTING, _fits_context),
        Filter("excluded", Effect.LASTING, lambda replica, want: replica.facts.replica_id not in want.excluded_replica_ids),
        Filter("draining", Effect.PASSING, lambda replica, _: not is_draining(replica)),
        Filter("not_ready", Effect.PASSING, lambda replica, _: replica.facts.state is ReplicaState.READY),
        Filter("disconnected", Effect.PASSING, lambda replica, _: replica.connected),
        Filter("silent", Effect.PASSING, lambda replica, _: replica.load_age_s <= limits.max_load_age_s),
        Filter("stuck", Effect.PASSING, lambda replica, _: replica.load.heartbeat_age_s <= limits.max_heartbeat_age_s),
        Filter("suspect", Effect.PASSING, lambda replica, _: not replica.is_suspect),
        Filter("sequences", Effect.ROOM, lambda replica, _: replica.num_in_flight < replica.max_num_sequences),
        Filter("kv_room", Effect.ROOM, lambda replica, want: _has_kv_room(replica, want, limits.max_reserved_output_tokens)),
    )


def is_draining(replica: ReplicaSnapshot) -> bool:
    """True when the registry or the engine itself says that it takes no new work."""
    return replica.load.draining or replica.facts.state is ReplicaState.DRAINING


def _has_version(replica: ReplicaSnapshot, want: Want) -> bool:
    return want.model_version in ("", replica.facts.model_version)


def _fits_context(replica: ReplicaSnapshot, want: Want) -> bool:
    return replica.facts.max_context_tokens <= 0 or want.prompt_tokens + want.max_output_tokens <= replica.facts.max_context_tokens


def _has_kv_room(replica: ReplicaSnapshot, want: Want, max_reserved_output_tokens: int) -> bool:
    """An idle replica admits anything that fits its context: a want larger than the reservation rule allows must not wait for ever."""
    if replica.num_blocks <= 0 or replica.num_in_flight == 0:
        return True
    return blocks_needed(want, replica.facts.block_size, max_reserved_output_tokens) <= replica.num_free_blocks
