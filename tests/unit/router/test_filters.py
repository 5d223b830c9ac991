"""Each filter admits and excludes as its table says."""

from __future__ import annotations

from typing import Any

import pytest

from services.router.filters import Effect, FilterLimits, standard_filters
from services.router.snapshot import ReplicaState
from tests.harness.router_parts import replica, want

FILTERS = {
    rule.name: rule for rule in standard_filters(FilterLimits(max_load_age_s=3, max_heartbeat_age_s=15, max_reserved_output_tokens=64))
}


@pytest.mark.parametrize(
    ("name", "of_replica", "of_want", "admits"),
    [
        ("version", {}, {"model_version": ""}, True),
        ("version", {}, {"model_version": "v1"}, True),
        ("version", {}, {"model_version": "v2"}, False),
        ("context", {"max_context_tokens": 32}, {}, True),
        ("context", {"max_context_tokens": 31}, {}, False),
        ("context", {"max_context_tokens": 0}, {}, True),
        ("excluded", {}, {"excluded_replica_ids": frozenset({"b"})}, True),
        ("excluded", {}, {"excluded_replica_ids": frozenset({"a"})}, False),
        ("draining", {}, {}, True),
        ("draining", {"draining": True}, {}, False),
        ("draining", {"state": ReplicaState.DRAINING}, {}, False),
        ("not_ready", {}, {}, True),
        ("not_ready", {"state": ReplicaState.STARTING}, {}, False),
        ("not_ready", {"state": ReplicaState.UNKNOWN}, {}, False),
        ("disconnected", {}, {}, True),
        ("disconnected", {"connected": False}, {}, False),
        ("silent", {"load_age_s": 3.0}, {}, True),
        ("silent", {"load_age_s": 3.1}, {}, False),
        ("silent", {"load_age_s": float("inf")}, {}, False),
        ("stuck", {"heartbeat_age_s": 15.0}, {}, True),
        ("stuck", {"heartbeat_age_s": 15.1}, {}, False),
        ("suspect", {}, {}, True),
        ("suspect", {"is_suspect": True}, {}, False),
        ("sequences", {"num_in_flight": 3}, {}, True),
        ("sequences", {"num_in_flight": 4}, {}, False),
        ("sequences", {"num_in_flight": 4, "max_num_sequences": 0}, {}, False),
        ("kv_room", {"num_in_flight": 1, "num_taken_blocks": 98}, {}, True),
        ("kv_room", {"num_in_flight": 1, "num_taken_blocks": 99}, {}, False),
        ("kv_room", {"num_in_flight": 1, "num_taken_blocks": 95}, {"max_output_tokens": 900}, True),
        ("kv_room", {"num_in_flight": 1, "num_taken_blocks": 96}, {"max_output_tokens": 900}, False),
        ("kv_room", {"num_in_flight": 0, "num_taken_blocks": 0}, {"prompt_tokens": 5000}, True),
        ("kv_room", {"num_in_flight": 1, "num_blocks": 0}, {"prompt_tokens": 5000}, True),
    ],
)
def test_filter_table(name: str, of_replica: dict[str, Any], of_want: dict[str, Any], admits: bool) -> None:
    assert FILTERS[name].admits(replica("a", **of_replica), want(**of_want)) is admits


def test_filters_healthy_idle_replica_passes_all() -> None:
    assert all(rule.admits(replica(), want()) for rule in FILTERS.values())


def test_filters_lasting_then_passing_then_room() -> None:
    effects = [rule.effect for rule in FILTERS.values()]
    assert effects == sorted(effects, key=[Effect.LASTING, Effect.PASSING, Effect.ROOM].index)
