"""Admission on a clock that stands still: order, bounds, deadlines, grace, and who is told."""

from __future__ import annotations

import pytest

from services.router.snapshot import ReplicaState
from services.router.want import Granted, HeldGrant
from tests.harness.router_parts import MODEL, UNIX_MS, AdmissionBench, facts, outcomes, take, want


def test_admission_waits_in_order_for_room() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    for name in ("w1", "w2", "w3"):
        bench.admission.offer(want(name), stream)
    assert outcomes(stream) == [("w1", "a")]
    bench.admission.done("w1", stream, replica_lost=False)
    bench.admission.done("w2", stream, replica_lost=False)
    assert outcomes(stream) == [("w2", "a"), ("w3", "a")]


def test_admission_grant_tells_the_time_in_the_queue() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    bench.admission.offer(want("w1"), stream)
    bench.admission.offer(want("w2"), stream)
    bench.move(1.5)
    bench.refresh()
    bench.admission.done("w1", stream, replica_lost=False)
    answers = [answer for answer in take(stream) if isinstance(answer, Granted)]
    assert [answer.queue_s for answer in answers] == [0.0, 1.5]
    assert bench.events.grants == [(MODEL, 0.0), (MODEL, 1.5)]
    bench.move(0.25)
    bench.admission.first_token("w2")
    assert bench.events.first_tokens == [(MODEL, 1.75)]


def test_admission_large_want_is_not_overtaken_by_small_ones() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a")
    bench.admission.offer(want("running", prompt_tokens=16 * 50), stream)
    bench.admission.offer(want("large", prompt_tokens=16 * 50), stream)
    bench.admission.offer(want("small"), stream)
    assert outcomes(stream) == [("running", "a")]
    bench.admission.done("running", stream, replica_lost=False)
    assert outcomes(stream) == [("large", "a"), ("small", "a")]


def test_admission_want_for_another_replica_passes_by() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    bench.up("b", max_num_sequences=1)
    bench.admission.offer(want("w1", excluded_replica_ids=frozenset("b")), stream)
    bench.admission.offer(want("w2", excluded_replica_ids=frozenset("b")), stream)
    bench.admission.offer(want("w3", excluded_replica_ids=frozenset("a")), stream)
    assert outcomes(stream) == [("w1", "a"), ("w3", "b")]


def test_admission_small_want_does_not_take_the_room_that_a_pickier_one_waits_for() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a")
    bench.up("b", max_num_sequences=1)
    bench.admission.offer(want("on-a", prompt_tokens=16 * 60, excluded_replica_ids=frozenset("b")), stream)
    bench.admission.offer(want("on-b", excluded_replica_ids=frozenset("a")), stream)
    take(stream)
    bench.admission.offer(want("large", prompt_tokens=16 * 50, excluded_replica_ids=frozenset("b")), stream)
    bench.admission.offer(want("small"), stream)
    assert outcomes(stream) == []
    assert [verdict.excluded_by for verdict in bench.admission.explain(want("next")).verdicts] == ["turn", "sequences"]
    bench.admission.done("on-b", stream, replica_lost=False)
    assert outcomes(stream) == [("small", "b")]


def test_admission_nothing_registered_is_refused_at_once() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.admission.offer(want(), stream)
    assert outcomes(stream) == [("w", "NO_READY_REPLICA")]
    assert bench.events.rejects == [(MODEL, "NO_READY_REPLICA")]


def test_admission_last_replica_removed_refuses_who_waits() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    bench.admission.offer(want("w1"), stream)
    bench.admission.offer(want("w2"), stream)
    bench.view.remove("a")
    assert outcomes(stream) == [("w1", "a"), ("w2", "NO_READY_REPLICA")]


def test_admission_replica_replaced_by_its_successor_refuses_nobody() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    bench.admission.offer(want("w1"), stream)
    bench.admission.offer(want("w2"), stream)
    bench.up("a", incarnation="a-2", max_num_sequences=1)
    assert outcomes(stream) == [("w1", "a"), ("w2", "a")]


def test_admission_before_the_registry_was_read_wants_are_held() -> None:
    bench = AdmissionBench(no_replica_grace_s=2.0)
    bench.view._complete = False
    stream = bench.stream()
    bench.admission.offer(want("w1"), stream)
    bench.admission.offer(want("w2", model="unknown"), stream)
    assert outcomes(stream) == []
    bench.up("a")
    bench.view.mark_complete()
    assert outcomes(stream) == [("w1", "a"), ("w2", "NO_READY_REPLICA")]


def test_admission_grace_is_counted_from_when_the_want_found_nobody() -> None:
    bench = AdmissionBench(no_replica_grace_s=2.0)
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    bench.admission.offer(want("w1"), stream)
    bench.admission.offer(want("w2"), stream)
    take(stream)
    bench.move(10.0)
    bench.refresh()
    bench.view.disconnect("a")
    bench.move(1.9)
    assert outcomes(stream) == []
    bench.move(0.1)
    assert outcomes(stream) == [("w2", "NO_READY_REPLICA")]


def test_admission_grace_ends_well_when_a_replica_comes_back() -> None:
    bench = AdmissionBench(no_replica_grace_s=2.0)
    stream = bench.stream()
    bench.up("a", max_num_sequences=1, state=ReplicaState.STARTING)
    for name in ("w1", "w2", "w3"):
        bench.admission.offer(want(name), stream)
    bench.move(1.9)
    bench.view.register(facts("a", max_num_sequences=1))
    assert outcomes(stream) == [("w1", "a")]
    bench.move(1.0)
    assert outcomes(stream) == []
    assert bench.admission.explain(want("w4")).queue_position == 2
    bench.view.disconnect("a")
    bench.move(1.9)
    assert outcomes(stream) == []
    bench.move(0.2)
    assert outcomes(stream) == [("w2", "NO_READY_REPLICA"), ("w3", "NO_READY_REPLICA")]


def test_admission_replica_silent_beyond_its_bound_gets_nothing() -> None:
    bench = AdmissionBench(max_load_age_s=3.0, no_replica_grace_s=2.0)
    stream = bench.stream()
    bench.up("a")
    bench.move(3.5)
    bench.admission.offer(want("w1"), stream)
    assert outcomes(stream) == []
    bench.refresh()
    assert outcomes(stream) == [("w1", "a")]


def test_admission_queue_bound_refuses_the_rest() -> None:
    bench = AdmissionBench(max_queue_length=2)
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    for name in ("w1", "w2", "w3", "w4"):
        bench.admission.offer(want(name), stream)
    assert outcomes(stream) == [("w1", "a"), ("w4", "QUEUE_FULL")]
    assert bench.events.depths == {MODEL: 2}


def test_admission_burst_on_a_starting_replica_holds_the_bound_and_serves_it_later() -> None:
    """A hundred requests at zero ready replicas, room for twenty: five leave, five have three seconds, eighty are told at once."""
    bench = AdmissionBench(max_queue_length=20, queue_timeout_s=60.0, no_replica_grace_s=60.0)
    staying, leaving = bench.stream("staying"), bench.stream("leaving")
    bench.up("a", max_num_sequences=64, state=ReplicaState.STARTING)
    for number in range(100):
        stream = leaving if number < 5 else staying
        deadline = UNIX_MS + 3000 if 5 <= number < 10 else 0
        bench.admission.offer(want(f"w{number}", deadline_unix_ms=deadline), stream)
    assert [reason for _, reason in outcomes(staying)] == ["QUEUE_FULL"] * 80
    bench.admission.release(leaving)
    assert bench.events.depths == {MODEL: 15}
    bench.move(3.0)
    assert outcomes(staying) == [(f"w{number}", "QUEUE_TIMEOUT") for number in range(5, 10)]
    bench.move(4.0)
    bench.up("a", max_num_sequences=64)
    assert outcomes(staying) == [(f"w{number}", "a") for number in range(10, 20)]
    assert outcomes(leaving) == []
    assert bench.events.depths == {MODEL: 0}


@pytest.mark.parametrize(("deadline_s", "refused_after_s"), [(0, 30.0), (5, 5.0), (100, 30.0)])
def test_admission_deadline_is_the_earlier_of_own_bound_and_want(deadline_s: int, refused_after_s: float) -> None:
    bench = AdmissionBench(queue_timeout_s=30.0, max_load_age_s=1000.0)
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    bench.admission.offer(want("w1"), stream)
    bench.admission.offer(want("w2", deadline_unix_ms=UNIX_MS + 1000 * deadline_s if deadline_s else 0), stream)
    take(stream)
    assert bench.alarm.when == bench.clock.now + refused_after_s
    bench.move(refused_after_s - 0.01)
    assert outcomes(stream) == []
    bench.move(0.02)
    assert outcomes(stream) == [("w2", "QUEUE_TIMEOUT")]
    assert bench.alarm.when is None


def test_admission_deadline_passed_on_arrival_is_refused() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a")
    bench.admission.offer(want(deadline_unix_ms=UNIX_MS), stream)
    assert outcomes(stream) == [("w", "QUEUE_TIMEOUT")]


def test_admission_refusal_of_a_blocking_want_lets_the_next_one_in() -> None:
    bench = AdmissionBench(max_load_age_s=1000.0)
    stream = bench.stream()
    bench.up("a")
    bench.admission.offer(want("running", prompt_tokens=16 * 60), stream)
    bench.admission.offer(want("large", prompt_tokens=16 * 50, deadline_unix_ms=UNIX_MS + 1000), stream)
    bench.admission.offer(want("small"), stream)
    assert outcomes(stream) == [("running", "a")]
    bench.move(1.0)
    assert outcomes(stream) == [("large", "QUEUE_TIMEOUT"), ("small", "a")]


def test_admission_cancel_of_a_blocking_want_lets_the_next_one_in() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a")
    bench.admission.offer(want("running", prompt_tokens=16 * 60), stream)
    bench.admission.offer(want("large", prompt_tokens=16 * 50), stream)
    bench.admission.offer(want("small"), stream)
    take(stream)
    bench.admission.done("large", stream, replica_lost=False)
    assert outcomes(stream) == [("small", "a")]


def test_admission_retry_delay_follows_the_last_wait() -> None:
    bench = AdmissionBench(max_queue_length=1, max_load_age_s=1000.0)
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    bench.admission.offer(want("w1"), stream)
    bench.admission.offer(want("w2"), stream)
    bench.move(7.0)
    bench.admission.done("w1", stream, replica_lost=False)
    bench.admission.offer(want("w3"), stream)
    bench.admission.offer(want("w4"), stream)
    last = take(stream)[-1]
    assert not isinstance(last, Granted)
    assert (last.want_id, last.reason, last.retry_after_s) == ("w4", "QUEUE_FULL", 7.0)


def test_admission_broken_stream_gives_everything_back() -> None:
    bench = AdmissionBench()
    broken, other = bench.stream("broken"), bench.stream("other")
    bench.up("a", max_num_sequences=2)
    for name in ("w1", "w2", "w3"):
        bench.admission.offer(want(name), broken)
    bench.admission.offer(want("w4"), other)
    take(broken)
    bench.admission.release(broken)
    assert (outcomes(broken), outcomes(other)) == ([], [("w4", "a")])
    assert [grant.want_id for grant in bench.ledger] == ["w4"]
    bench.admission.done("w1", broken, replica_lost=True)
    assert len(bench.ledger) == 1


def test_admission_waiting_want_moves_to_the_stream_that_asks_again() -> None:
    bench = AdmissionBench()
    old, new = bench.stream("old"), bench.stream("new")
    bench.up("a", max_num_sequences=1)
    for name in ("w1", "w2"):
        bench.admission.offer(want(name), old)
    take(old)
    bench.admission.offer(want("w2"), new)
    bench.admission.release(old)
    assert (outcomes(old), outcomes(new)) == ([], [("w2", "a")])


def test_admission_granted_want_asked_again_gets_the_same_grant() -> None:
    bench = AdmissionBench()
    old, new = bench.stream("old"), bench.stream("new")
    bench.up("a")
    bench.up("b")
    bench.admission.offer(want("w1"), old)
    first = take(old)
    bench.admission.offer(want("w1"), old)
    assert take(old) == []
    bench.admission.offer(want("w1"), new)
    assert take(new) == first
    bench.admission.release(old)
    assert [grant.owner for grant in bench.ledger] == [new.stream_id]


def test_admission_held_grants_are_counted_again_until_done() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a", max_num_sequences=1)
    bench.admission.adopt([HeldGrant("held", "a", MODEL)], stream)
    (known,) = bench.view.replicas()
    assert known.num_granted == 1
    bench.admission.done("held", stream, replica_lost=False)
    assert (len(bench.ledger), bench.view.replicas()[0].num_granted) == (0, 0)


def test_admission_lost_replica_is_avoided_and_the_retry_goes_elsewhere() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a")
    bench.up("b")
    bench.admission.offer(want("w1"), stream)
    assert outcomes(stream) == [("w1", "a")]
    bench.admission.done("w1", stream, replica_lost=True)
    for number in range(3):
        bench.admission.offer(want(f"again{number}"), stream)
    assert [replica for _, replica in outcomes(stream)] == ["b"] * 3


def test_admission_two_idle_replicas_share_short_requests_in_turn() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a")
    bench.up("b")
    picked = []
    for number in range(20):
        bench.admission.offer(want(f"w{number}"), stream)
        picked += [replica for _, replica in outcomes(stream)]
        bench.admission.done(f"w{number}", stream, replica_lost=False)
    assert picked.count("a") == picked.count("b") == 10


def test_admission_surplus_spills_over_to_the_other_replica() -> None:
    bench = AdmissionBench()
    stream = bench.stream()
    bench.up("a", max_num_sequences=4)
    bench.up("b", max_num_sequences=4)
    for number in range(6):
        bench.admission.offer(want(f"w{number}"), stream)
        bench.refresh()
    assert sorted(replica for _, replica in outcomes(stream)) == ["a"] * 3 + ["b"] * 3
    assert [known.num_in_flight for known in bench.view.replicas()] == [3, 3]
