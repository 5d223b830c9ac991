"""Decisions follow from the snapshot alone."""

from __future__ import annotations

import pytest

from services.router.config import RouterConfig
from services.router.decision import Outlook, decide
from services.router.explain import describe, explain
from services.router.snapshot import ReplicaSnapshot, ReplicaState, Snapshot
from tests.harness.router_parts import MODEL, replica, want

POLICY = RouterConfig().policy()
FULL = replica("full", num_in_flight=4)
DOWN = replica("down", connected=False)
OTHER_VERSION = replica("old", model_version="v0")


@pytest.mark.parametrize(
    ("replicas", "complete", "outlook"),
    [
        ((), True, Outlook.NO_REPLICA),
        ((), False, Outlook.NO_REPLICA_NOW),
        ((OTHER_VERSION,), True, Outlook.NO_REPLICA),
        ((OTHER_VERSION,), False, Outlook.NO_REPLICA_NOW),
        ((OTHER_VERSION, DOWN), True, Outlook.NO_REPLICA_NOW),
        ((DOWN, FULL), True, Outlook.NO_ROOM),
        ((DOWN, FULL, replica("a")), True, Outlook.PICKED),
    ],
)
def test_decide_outlook(replicas: tuple[ReplicaSnapshot, ...], complete: bool, outlook: Outlook) -> None:
    decision = decide(Snapshot(MODEL, replicas, complete), want(model_version="v1"), POLICY)
    assert decision.outlook is outlook
    assert (decision.picked is not None) is (outlook is Outlook.PICKED)


def test_decide_prefers_the_emptier_replica() -> None:
    busy, idle = replica("a", num_in_flight=2), replica("b", num_in_flight=1)
    picked = decide(Snapshot(MODEL, (busy, idle)), want(), POLICY).picked
    assert picked is idle


def test_decide_claimed_replica_waits_for_its_turn() -> None:
    decision = decide(Snapshot(MODEL, (replica("a"), FULL)), want(), POLICY, {"a"})
    assert [verdict.excluded_by for verdict in decision.verdicts] == ["turn", "sequences"]
    assert decision.contended == {"a", "full"}
    assert decision.blocks_all_later


def test_decide_other_version_lets_later_wants_pass() -> None:
    decision = decide(Snapshot(MODEL, (OTHER_VERSION, FULL)), want(model_version="v1"), POLICY)
    assert decision.contended == {"full"}
    assert not decision.blocks_all_later


def test_decide_is_repeatable() -> None:
    snapshot = Snapshot(MODEL, (replica("a", num_in_flight=1), replica("b"), DOWN, FULL))
    assert decide(snapshot, want(), POLICY) == decide(snapshot, want(), POLICY)


def test_describe_counts_exclusions() -> None:
    starting = replica("s", state=ReplicaState.STARTING)
    decision = decide(Snapshot(MODEL, (DOWN, starting, replica("t", state=ReplicaState.STARTING))), want(), POLICY)
    assert describe(decision) == "1 disconnected, 2 not_ready"


@pytest.mark.parametrize(("complete", "words"), [(True, "none is registered"), (False, "the registry has not been read yet")])
def test_describe_no_replicas(complete: bool, words: str) -> None:
    assert describe(decide(Snapshot(MODEL, (), complete), want(), POLICY)) == words


def test_explain_last_in_the_queue_sees_the_claims_of_earlier_wants() -> None:
    nearly_full = replica("a", num_in_flight=1, num_taken_blocks=98)
    large = want("large", prompt_tokens=64)
    explanation = explain(Snapshot(MODEL, (nearly_full,)), [large], want("small"), POLICY)
    assert (explanation.picked_replica_id, explanation.queue_position, explanation.reason) == ("", 1, "no_room: 1 turn")
    assert explain(Snapshot(MODEL, (nearly_full,)), [], want("small"), POLICY).picked_replica_id == "a"
