"""Scores stay in [0, 1] and settings that cannot work are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.scorers import SCORERS, parse_scorers
from tests.harness.router_parts import replica, want


@pytest.mark.parametrize(
    ("name", "of_replica", "score"),
    [
        ("queue", {"num_in_flight": 0}, 1.0),
        ("queue", {"num_in_flight": 1}, 0.75),
        ("queue", {"num_in_flight": 4}, 0.0),
        ("queue", {"num_in_flight": 40}, 0.0),
        ("kv_room", {"num_taken_blocks": 0}, 1.0),
        ("kv_room", {"num_taken_blocks": 25}, 0.75),
        ("kv_room", {"num_taken_blocks": 200}, 0.0),
        ("kv_room", {"num_blocks": 0}, 1.0),
    ],
)
def test_scorer_table(name: str, of_replica: dict[str, Any], score: float) -> None:
    assert SCORERS[name](replica("a", **of_replica), want()) == pytest.approx(score)


COUNTS = st.integers(0, 10_000)


@given(in_flight=COUNTS, taken=COUNTS, blocks=COUNTS, sequences=COUNTS)
def test_scorers_are_in_the_unit_interval(in_flight: int, taken: int, blocks: int, sequences: int) -> None:
    subject = replica("a", num_in_flight=in_flight, num_taken_blocks=taken, num_blocks=blocks, max_num_sequences=sequences)
    assert all(0.0 <= scorer(subject, want()) <= 1.0 for scorer in SCORERS.values())


def test_parse_scorers_keeps_order_and_weights() -> None:
    assert [(scorer.name, scorer.weight) for scorer in parse_scorers(["kv_room=0.5", "queue=2"])] == [("kv_room", 0.5), ("queue", 2.0)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "at least one scorer"),
        (["luck=1"], "unknown scorer 'luck'; known are kv_room, queue"),
        (["queue"], "needs a weight"),
        (["queue=much"], "needs a weight"),
        (["queue=0"], "above 0"),
        (["queue=-1"], "above 0"),
        (["queue=nan"], "above 0"),
        (["queue=inf"], "above 0"),
        (["queue=1", "queue=2"], "named twice"),
    ],
)
def test_parse_scorers_refuses_what_would_be_inert(settings: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_scorers(settings)
