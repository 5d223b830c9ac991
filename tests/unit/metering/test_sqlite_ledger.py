"""The ledger counts every record once, whatever is repeated, reordered, contradicted or broken."""

import pathlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferway.metering.v1 import records_pb2 as pb
from services.metering.clients.usage_records import from_bytes
from services.metering.ledger.interface import Dimension, RequestFilter, StaleBatch, UsageFilter
from services.metering.ledger.sqlite import SqliteLedger, utc_day
from services.metering.records import Outcome
from tests.harness.usage import NOW_MS, attempt_record, batch, request_record


@pytest.fixture
def ledger() -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(":memory:")
    yield ledger
    ledger.close()


def total(ledger: SqliteLedger) -> tuple[int, int, int]:
    (row,) = ledger.usage([], UsageFilter())
    return row.num_requests, row.prompt_tokens, row.completion_tokens


def test_apply_stores_request_roll_up_and_offset_together(ledger: SqliteLedger) -> None:
    applied = ledger.apply(batch([request_record(sequence=1), request_record(sequence=2)], first_offset=7))
    assert (applied.num_requests, applied.watermarks) == (2, {"p1": 2})
    position = ledger.position("usage.requests.v1", 0)
    assert position is not None and position.next_offset == 9
    assert total(ledger) == (2, 20, 10)


def test_apply_same_record_again_changes_nothing(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record()]))
    applied = ledger.apply(batch([request_record()], first_offset=1))
    assert (applied.num_requests, applied.num_duplicates, applied.watermarks) == (0, 1, {"p1": 1})
    assert total(ledger) == (1, 10, 5)


def test_apply_same_name_other_content_is_a_conflict_set_aside(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record()]))
    applied = ledger.apply(batch([request_record(completion_tokens=500)], first_offset=1))
    assert (applied.num_conflicts, applied.num_quarantined) == (1, 1)
    assert total(ledger) == (1, 10, 5)


def test_apply_same_charge_from_another_record_bills_once(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record(sequence=1)]))
    applied = ledger.apply(batch([request_record(sequence=2, charge_id="p1-1")], first_offset=1))
    assert (applied.num_requests, applied.num_conflicts, applied.watermarks) == (0, 1, {"p1": 2})
    assert total(ledger) == (1, 10, 5)


def test_apply_batch_below_the_stored_offset_is_stale_and_stores_nothing(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record(sequence=1)], first_offset=4))
    with pytest.raises(StaleBatch):
        ledger.apply(batch([request_record(sequence=2)], first_offset=4))
    assert total(ledger) == (1, 10, 5)


def test_apply_offset_gap_is_normal(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record(sequence=1)], first_offset=0))
    assert ledger.apply(batch([request_record(sequence=2)], first_offset=50)).num_requests == 1


def test_reset_position_new_topic_reads_again_without_counting_twice(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record(sequence=1), request_record(sequence=2)]))
    ledger.reset_position("usage.requests.v1", 0, "t2")
    applied = ledger.apply(batch([request_record(sequence=2), request_record(sequence=3)], topic_id="t2"))
    assert (applied.num_requests, applied.num_duplicates) == (1, 1)
    assert total(ledger) == (3, 30, 15)
    assert ledger.totals().num_topic_resets == 1


def test_apply_old_topic_id_after_reset_is_stale(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record(sequence=1)]))
    ledger.reset_position("usage.requests.v1", 0, "t2")
    with pytest.raises(StaleBatch):
        ledger.apply(batch([request_record(sequence=2)], first_offset=1, topic_id="t1"))


def test_watermark_waits_for_the_gap_and_jumps_when_it_is_filled(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record(sequence=1), request_record(sequence=3), request_record(sequence=4)]))
    (producer,) = ledger.producers()
    assert (producer.watermark, producer.highest, producer.num_missing) == (1, 4, 1)
    assert ledger.apply(batch([request_record(sequence=2)], first_offset=3)).watermarks == {"p1": 4}
    (producer,) = ledger.producers()
    assert (producer.watermark, producer.num_missing) == (4, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"sealed_unix_ms": -1},
        {"sealed_unix_ms": 0},
        {"sealed_unix_ms": NOW_MS + 16 * 60_000},
        {"sealed_unix_ms": NOW_MS - 46 * 86_400_000},
        {"cached_prompt_tokens": 11},
        {"outcome": pb.REQUEST_OUTCOME_FAILED},
        {"outcome": 99},
        {"tenant_id": ""},
    ],
)
def test_apply_record_with_a_fault_is_set_aside_and_acknowledged(ledger: SqliteLedger, fields: dict[str, object]) -> None:
    applied = ledger.apply(batch([request_record(**fields), request_record(sequence=2)]))
    assert (applied.num_requests, applied.num_quarantined, applied.watermarks) == (1, 1, {"p1": 2})


@pytest.mark.parametrize(
    ("producer", "sequence"),
    [("", 1), ("p1", 0), ("p1", 2**63), ("p1", 2**64 - 1), ("../keys", 1), ("a/b", 1), ("a\0", 1), ("p" * 129, 1), ("-", 1)],
)
def test_apply_record_whose_name_nobody_can_use_is_only_set_aside(ledger: SqliteLedger, producer: str, sequence: int) -> None:
    """Its producer cannot be told of it in the registry, or the ledger cannot count that far: it must not stop the others."""
    applied = ledger.apply(batch([request_record(producer, sequence), request_record("p2")]))
    assert (applied.num_requests, applied.num_quarantined, applied.watermarks) == (1, 1, {"p2": 1})


@pytest.mark.parametrize("skew_ms", [25_000, 10 * 60_000, -40 * 86_400_000])
def test_apply_small_skew_and_late_records_are_billed_on_their_day(ledger: SqliteLedger, skew_ms: int) -> None:
    ledger.apply(batch([request_record(sealed_unix_ms=NOW_MS + skew_ms)]))
    (row,) = ledger.usage([Dimension.DAY], UsageFilter())
    assert row.day == utc_day(NOW_MS + skew_ms)


@pytest.mark.parametrize("value", [b"{broken json", b"", b"\x0a\x02p1"])
def test_apply_unreadable_bytes_do_not_block_the_partition(ledger: SqliteLedger, value: bytes) -> None:
    applied = ledger.apply(batch([from_bytes(value, NOW_MS), request_record()]))
    assert (applied.num_requests, applied.num_quarantined) == (1, 1)


def test_requests_shows_attempts_and_pages_newest_first(ledger: SqliteLedger) -> None:
    records = [request_record(sequence=n, sealed_unix_ms=NOW_MS + n) for n in range(1, 6)]
    ledger.apply(batch([*records, attempt_record()]))
    first = ledger.requests(RequestFilter(limit=3))
    assert [entry.charge_id for entry, _ in first] == ["p1-5", "p1-4", "p1-3"]
    last = first[-1][0]
    rest = ledger.requests(RequestFilter(limit=3, before=(last.sealed_unix_ms, last.charge_id)))
    assert [(entry.charge_id, len(attempts)) for entry, attempts in rest] == [("p1-2", 0), ("p1-1", 1)]
    assert rest[1][1][0].outcome is Outcome.FINISHED


def test_requests_finds_by_each_kind_of_id_and_tenant(ledger: SqliteLedger) -> None:
    ledger.apply(batch([request_record(sequence=1), request_record(sequence=2, tenant_id="other")]))
    for wanted in ("p1-1", "r-p1-1", "chatcmpl-p1-1"):
        assert [entry.charge_id for entry, _ in ledger.requests(RequestFilter(ids=(wanted,)))] == ["p1-1"]
    assert ledger.requests(RequestFilter(ids=("p1-1",), tenant_id="other")) == []


def test_usage_groups_and_filters(ledger: SqliteLedger) -> None:
    records = [request_record(sequence=1), request_record(sequence=2, model="m2"), request_record(sequence=3, tenant_id="b")]
    ledger.apply(batch(records))
    rows = ledger.usage([Dimension.TENANT, Dimension.MODEL], UsageFilter(tenant_id="acme"))
    assert [(row.tenant_id, row.model, row.day, row.num_requests) for row in rows] == [("acme", "m1", "", 1), ("acme", "m2", "", 1)]


def test_utc_day_ignores_the_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    for zone in ("Pacific/Kiritimati", "America/Los_Angeles"):
        monkeypatch.setenv("TZ", zone)
        assert utc_day(1_790_812_799_000) == "2026-09-30"
        assert utc_day(1_790_812_800_000) == "2026-10-01"


def test_open_file_twice_keeps_everything(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "ledger.sqlite")
    first = SqliteLedger(path)
    first.apply(batch([request_record()]))
    first.close()
    second = SqliteLedger(path)
    assert total(second) == (1, 10, 5)
    second.close()


@settings(max_examples=40)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=80), st.randoms(use_true_random=False))
def test_apply_any_order_with_any_repeats_counts_each_once(sequences: list[int], rng: random.Random) -> None:
    ledger, offset = SqliteLedger(":memory:"), 0
    while sequences:
        size = rng.randint(1, 7)
        part, sequences = sequences[:size], sequences[size:]
        ledger.apply(batch([request_record(sequence=n) for n in part], first_offset=offset))
        offset += len(part)
        seen = {entry.charge_id for entry, _ in ledger.requests(RequestFilter(limit=1000))}
        assert total(ledger) == (len(seen), 10 * len(seen), 5 * len(seen))
        (producer,) = ledger.producers()
        expected = next(n for n in range(32) if f"p1-{n + 1}" not in seen)
        assert producer.watermark == expected
        assert producer.num_missing == producer.highest - expected - sum(1 for n in range(expected + 1, 31) if f"p1-{n}" in seen)
    ledger.close()
