"""Chooses one of the scored replicas; equals share the traffic and equal inputs give equal picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.router.snapshot import ReplicaSnapshot


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that passed all filters, and its weighted total."""

    replica: ReplicaSnapshot
    total: float


def pick(candidates: Sequence[Candidate], tie_margin: float) -> ReplicaSnapshot | None:
    """The best replica; among those within ``tie_margin`` of the best total the one that was picked longest ago, then the smallest id.

    None when there are no candidates.
    """
    if not candidates:
        return None
    best = max(candidate.total for candidate in candidates)
    tied = (candidate.replica for candidate in candidates if candidate.total >= best - tie_margin)
    return min(tied, key=lambda replica: (replica.last_pick, replica.facts.replica_id))
