"""Filter, score, pick: the decision on one want as a pure function of a snapshot. Admission and Explain run this same code."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum

from services.router.filters import Effect, Filter
from services.router.picker import Candidate, pick
from services.router.scorers import WeightedScorer
from services.router.snapshot import ReplicaSnapshot, Snapshot
from services.router.want import Want

TURN = "turn"
"""Name of the exclusion of a replica whose next room belongs to a want that came earlier."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How decisions are made: filters in order, weighted scorers, and how close totals count as equal."""

    filters: tuple[Filter, ...]
    scorers: tuple[WeightedScorer, ...]
    tie_margin: float
    max_reserved_output_tokens: int


@dataclass(frozen=True, slots=True)
class Score:
    """One scorer's word on one replica."""

    scorer: str
    value: float
    weight: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What filters and scorers say about one replica; ``excluded_by`` is empty when it may be picked."""

    replica: ReplicaSnapshot
    excluded_by: str
    effect: Effect | None
    scores: tuple[Score, ...]
    total: float


class Outlook(Enum):
    """What becomes of the want now."""

    PICKED = "picked"
    NO_ROOM = "no_room"
    """A replica serves such wants and is full, or its next room belongs to an earlier want."""
    NO_REPLICA_NOW = "no_replica_now"
    """Replicas are known that could serve it; none works at this moment."""
    NO_REPLICA = "no_replica"
    """Nothing that is known can ever serve it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one want, with everything that led to it."""

    verdicts: tuple[Verdict, ...]
    picked: ReplicaSnapshot | None
    outlook: Outlook

    @property
    def contended(self) -> frozenset[str]:
        """Replicas that only lack room for the want: their next room is its."""
        return frozenset(verdict.replica.facts.replica_id for verdict in self.verdicts if verdict.effect is Effect.ROOM)

    @property
    def blocks_all_later(self) -> bool:
        """True when a later want cannot get anything either: every replica is contended or out of work for everybody."""
        return self.outlook is Outlook.NO_ROOM and all(verdict.effect is not Effect.LASTING for verdict in self.verdicts)


def decide(snapshot: Snapshot, want: Want, policy: Policy, claimed: Set[str] = frozenset()) -> Decision:
    """The decision on ``want``. ``claimed`` are replicas whose next room belongs to wants that came earlier. Pure."""
    verdicts = tuple(_judge(replica, want, policy, claimed) for replica in snapshot.replicas)
    admitted = [Candidate(verdict.replica, verdict.total) for verdict in verdicts if verdict.effect is None]
    picked = pick(admitted, policy.tie_margin)
    return Decision(verdicts, picked, _outlook(snapshot, verdicts))


def _judge(replica: ReplicaSnapshot, want: Want, policy: Policy, claimed: Set[str]) -> Verdict:
    excluded_by, effect = _exclusion(replica, want, policy, claimed)
    scores = tuple(Score(scorer.name, scorer.score(replica, want), scorer.weight) for scorer in policy.scorers)
    return Verdict(replica, excluded_by, effect, scores, sum(score.value * score.weight for score in scores))


def _exclusion(replica: ReplicaSnapshot, want: Want, policy: Policy, claimed: Set[str]) -> tuple[str, Effect | None]:
    for rule in policy.filters:
        if not rule.admits(replica, want):
            return rule.name, rule.effect
    if replica.facts.replica_id in claimed:
        return TURN, Effect.ROOM
    return "", None


def _outlook(snapshot: Snapshot, verdicts: tuple[Verdict, ...]) -> Outlook:
    effects = {verdict.effect for verdict in verdicts}
    if None in effects:
        return Outlook.PICKED
    if Effect.ROOM in effects:
        return Outlook.NO_ROOM
    if Effect.PASSING in effects or not snapshot.complete:
        return Outlook.NO_REPLICA_NOW
    return Outlook.NO_REPLICA
