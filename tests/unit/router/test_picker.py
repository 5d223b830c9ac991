"""The best is picked, equals take turns, equal inputs give equal picks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.picker import Candidate, pick
from tests.harness.router_parts import replica


@pytest.mark.parametrize(
    ("candidates", "picked"),
    [
        ([], None),
        ([("a", 0.2, 0), ("b", 0.9, 9)], "b"),
        ([("b", 0.5, 0), ("a", 0.5, 0)], "a"),
        ([("a", 0.5, 2), ("b", 0.5, 1)], "b"),
        ([("a", 0.500, 2), ("b", 0.495, 1)], "b"),
        ([("a", 0.500, 2), ("b", 0.480, 1)], "a"),
    ],
)
def test_pick_table(candidates: list[tuple[str, float, int]], picked: str | None) -> None:
    found = pick([Candidate(replica(name, last_pick=last_pick), total) for name, total, last_pick in candidates], tie_margin=0.01)
    assert (found.facts.replica_id if found else None) == picked


@given(st.permutations([("a", 0.5, 3), ("b", 0.5, 1), ("c", 0.7, 2), ("d", 0.695, 1)]))
def test_pick_does_not_depend_on_the_order(candidates: list[tuple[str, float, int]]) -> None:
    found = pick([Candidate(replica(name, last_pick=last_pick), total) for name, total, last_pick in candidates], tie_margin=0.01)
    assert found is not None
    assert found.facts.replica_id == "d"


def test_pick_idle_equals_share_evenly() -> None:
    replicas = {name: replica(name) for name in "abc"}
    counts = dict.fromkeys(replicas, 0)
    for turn in range(1, 31):
        found = pick([Candidate(known, 1.0) for known in replicas.values()], tie_margin=0.01)
        assert found is not None
        counts[found.facts.replica_id] += 1
        replicas[found.facts.replica_id] = replace(found, last_pick=turn)
    assert counts == {"a": 10, "b": 10, "c": 10}
