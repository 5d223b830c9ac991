"""How good each replica is for a want: pure scores in [0, 1], chosen and weighted by configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from services.router.snapshot import ReplicaSnapshot
from services.router.want import Want


class Scorer(Protocol):
    """Says how good a replica is for a want. Pure; the result is in [0, 1] for every replica, excluded ones included."""

    def __call__(self, replica: ReplicaSnapshot, want: Want, /) -> float:
        """The score; 1 is best."""


@dataclass(frozen=True, slots=True)
class WeightedScorer:
    """A scorer with its share of the total."""

    name: str
    weight: float
    score: Scorer


def score_queue(replica: ReplicaSnapshot, _want: Want) -> float:
    """1 when nothing runs or waits, 0 when all places of a step are taken."""
    return 1.0 - min(1.0, replica.num_in_flight / replica.max_num_sequences)


def score_kv_room(replica: ReplicaSnapshot, _want: Want) -> float:
    """The share of KV blocks that is neither in use nor reserved; 1 when the engine does not say how many it has."""
    return replica.num_free_blocks / replica.num_blocks if replica.num_blocks > 0 else 1.0


SCORERS: Mapping[str, Scorer] = MappingProxyType({"queue": score_queue, "kv_room": score_kv_room})


def parse_scorers(settings: Sequence[str]) -> tuple[WeightedScorer, ...]:
    """Scorers from settings of the form ``name=weight``.

    Raises ValueError for an unknown or repeated name, a weight that is not above 0, and an empty list: a scorer that would be silently
    inert is an error of the configuration.
    """
    scorers = tuple(_parse(setting) for setting in settings)
    names = [scorer.name for scorer in scorers]
    if not names:
        raise ValueError("at least one scorer is needed")
    if len(set(names)) != len(names):
        raise ValueError(f"a scorer is named twice: {', '.join(names)}")
    return scorers


def _parse(setting: str) -> WeightedScorer:
    name, _, weight_text = setting.partition("=")
    scorer = SCORERS.get(name)
    if scorer is None:
        raise ValueError(f"unknown scorer {name!r}; known are {', '.join(sorted(SCORERS))}")
    try:
        weight = float(weight_text)
    except ValueError:
        raise ValueError(f"scorer {name!r} needs a weight, as in {name}=1.0") from None
    if not 0 < weight < float("inf"):
        raise ValueError(f"the weight of scorer {name!r} must be above 0")
    return WeightedScorer(name, weight, scorer)
