"""Grants are opened once, closed once, and their sums follow."""

from __future__ import annotations

import pytest

from services.router.grants import ADOPTED_TENURE, Grant, GrantLedger


def grant(want_id: str, owner: int = 1, *, incarnation: str = "a-1", tenure: int = 7, num_blocks: int = 3) -> Grant:
    return Grant(want_id, owner, "m", "a", incarnation, tenure, num_blocks)


def figures(ledger: GrantLedger, tenure: int = 7) -> tuple[int, int]:
    usage = ledger.usage("a", "a-1", tenure)
    return usage.num_grants, usage.num_blocks


def test_release_twice_counts_once() -> None:
    ledger = GrantLedger()
    ledger.add(grant("w1"))
    ledger.add(grant("w2"))
    assert ledger.release("w1", 1) is not None
    assert ledger.release("w1", 1) is None
    assert (len(ledger), figures(ledger)) == (1, (1, 3))


def test_release_by_another_stream_is_ignored() -> None:
    ledger = GrantLedger()
    ledger.add(grant("w1", owner=1))
    assert ledger.release("w1", 2) is None
    assert figures(ledger) == (1, 3)


def test_add_second_grant_of_a_want_is_a_fault() -> None:
    ledger = GrantLedger()
    ledger.add(grant("w1"))
    with pytest.raises(ValueError, match="w1"):
        ledger.add(grant("w1", owner=2))


def test_release_owner_closes_its_grants_only() -> None:
    ledger = GrantLedger()
    ledger.add(grant("w1", owner=1))
    ledger.add(grant("w2", owner=2))
    assert [closed.want_id for closed in ledger.release_owner(1)] == ["w1"]
    assert ledger.release_owner(1) == []
    assert [held.want_id for held in ledger] == ["w2"]


def test_transfer_moves_the_grant_and_keeps_the_sums() -> None:
    ledger = GrantLedger()
    ledger.add(grant("w1", owner=1))
    moved = ledger.transfer("w1", 2)
    assert moved is not None
    assert moved.owner == 2
    assert ledger.release_owner(1) == []
    assert figures(ledger) == (1, 3)
    assert ledger.transfer("unknown", 2) is None


def test_usage_is_per_tenure_and_num_open_per_incarnation() -> None:
    ledger = GrantLedger()
    ledger.add(grant("w1", tenure=7))
    ledger.add(grant("w2", tenure=8))
    ledger.add(grant("w3", incarnation="a-2", tenure=9))
    ledger.add(grant("w4", incarnation="", tenure=ADOPTED_TENURE))
    assert (figures(ledger, 7), figures(ledger, 8)) == ((1, 3), (1, 3))
    assert (ledger.num_open("a", "a-1"), ledger.num_open("a", "a-2"), ledger.num_open("b", "")) == (3, 2, 0)
