"""Registry, engine and grants become one figure that corrects itself."""

from __future__ import annotations

from services.router.grants import ADOPTED_TENURE, Grant, GrantLedger
from services.router.replica_view import ReplicaView
from services.router.snapshot import ReplicaSnapshot, ReplicaState
from tests.harness.router_parts import MODEL, MovableClock, facts, load


class Bench:
    def __init__(self) -> None:
        self.clock, self.ledger = MovableClock(), GrantLedger()
        self.view = ReplicaView(self.ledger, self.clock, suspect_hold_s=0.5)
        self.changes: list[str | None] = []
        self.view.subscribe(self.changes.append)
        self._num_grants = 0

    def up(self, **changes: str) -> None:
        self.view.register(facts("a", **changes))
        self.view.connect("a")
        self.view.report("a", load())

    def grant(self, num_blocks: int = 2) -> Grant:
        self._num_grants += 1
        known = self.view.facts_of("a")
        assert known is not None
        given = Grant(f"w{self._num_grants}", 1, MODEL, "a", known.incarnation, self.view.tenure_of("a"), num_blocks)
        self.ledger.add(given)
        return given

    @property
    def replica(self) -> ReplicaSnapshot:
        (replica,) = self.view.snapshot(MODEL).replicas
        return replica

    @property
    def figures(self) -> tuple[int, int]:
        return self.replica.num_in_flight, self.replica.num_taken_blocks


def test_view_grants_count_at_once_and_their_end_too() -> None:
    bench = Bench()
    bench.up()
    first, _ = bench.grant(), bench.grant()
    assert bench.figures == (2, 4)
    bench.ledger.release(first.want_id, 1)
    assert bench.figures == (1, 2)


def test_view_engine_report_of_own_grants_counts_nothing_twice() -> None:
    bench = Bench()
    bench.up()
    bench.grant()
    bench.grant()
    bench.view.report("a", load(num_running=1, num_waiting=1, num_used_blocks=4))
    assert bench.figures == (2, 4)


def test_view_work_of_other_routers_is_added() -> None:
    bench = Bench()
    bench.up()
    own = bench.grant()
    bench.view.report("a", load(num_running=3, num_used_blocks=10))
    assert bench.figures == (3, 10)
    bench.ledger.release(own.want_id, 1)
    assert bench.figures == (2, 8)
    bench.view.report("a", load(num_running=2, num_used_blocks=8))
    assert bench.figures == (2, 8)


def test_view_reports_never_reset_grants_on_their_way() -> None:
    """Periodic reports of an idle engine must not forget what was just granted."""
    bench = Bench()
    bench.up()
    for _ in range(3):
        bench.grant()
        bench.view.report("a", load())
    assert bench.figures == (3, 6)


def test_view_after_a_reconnect_the_engines_numbers_are_the_truth() -> None:
    bench = Bench()
    bench.up()
    for _ in range(4):
        bench.grant()
    bench.view.disconnect("a")
    bench.view.connect("a")
    bench.view.report("a", load(num_running=1, num_used_blocks=2))
    assert bench.figures == (1, 2)
    assert bench.replica.num_granted == 4


def test_view_new_incarnation_has_nothing_in_flight() -> None:
    bench = Bench()
    bench.up()
    old = bench.grant()
    bench.up(incarnation="a-2")
    assert (bench.figures, bench.replica.num_granted) == ((0, 0), 0)
    bench.ledger.release(old.want_id, 1)
    assert bench.figures == (0, 0)


def test_view_adopted_grant_is_counted_once_through_the_engine() -> None:
    bench = Bench()
    bench.ledger.add(Grant("held", 1, MODEL, "a", "", ADOPTED_TENURE))
    bench.up()
    bench.view.report("a", load(num_running=1, num_used_blocks=2))
    assert bench.figures == (1, 2)
    assert bench.replica.num_granted == 1


def test_view_grants_adopted_after_a_break_count_without_a_new_report() -> None:
    bench = Bench()
    bench.up()
    own = bench.grant()
    bench.view.report("a", load(num_running=1, num_used_blocks=2))
    bench.ledger.release(own.want_id, 1)
    bench.ledger.add(Grant(own.want_id, 2, MODEL, "a", own.incarnation, ADOPTED_TENURE))
    bench.view.recount("a")
    assert bench.figures == (1, 2)


def test_view_change_of_state_keeps_the_connection() -> None:
    bench = Bench()
    bench.up()
    bench.view.register(facts("a", state=ReplicaState.DRAINING))
    assert bench.replica.connected
    bench.view.register(facts("a", address="elsewhere:1"))
    assert not bench.replica.connected


def test_view_disconnect_forgets_the_engines_word() -> None:
    bench = Bench()
    bench.up()
    bench.view.report("a", load(num_running=3, draining=True))
    bench.view.disconnect("a")
    assert (bench.replica.connected, bench.replica.load_age_s, bench.replica.load.draining) == (False, float("inf"), False)


def test_view_suspect_until_a_report_that_is_new_enough() -> None:
    bench = Bench()
    bench.up()
    bench.view.suspect(bench.grant())
    bench.clock.now += 0.4
    bench.view.report("a", load())
    assert bench.replica.is_suspect
    bench.clock.now += 0.2
    bench.view.report("a", load())
    assert not bench.replica.is_suspect


def test_view_suspect_is_cleared_by_a_new_connection() -> None:
    bench = Bench()
    bench.up()
    bench.view.suspect(bench.grant())
    bench.view.disconnect("a")
    bench.view.connect("a")
    assert not bench.replica.is_suspect


def test_view_loss_on_an_old_incarnation_says_nothing_about_the_new_one() -> None:
    bench = Bench()
    bench.up()
    old = bench.grant()
    bench.up(incarnation="a-2")
    bench.view.suspect(old)
    assert not bench.replica.is_suspect


def test_view_tells_subscribers_the_model_of_every_change() -> None:
    bench = Bench()
    bench.up()
    assert bench.changes == [MODEL] * 3
    bench.view.mark_complete()
    assert bench.changes[3:] == [None]


def test_view_replica_moved_to_another_model_tells_both() -> None:
    bench = Bench()
    bench.up()
    bench.changes.clear()
    bench.view.register(facts("a", model="n"))
    assert bench.changes == ["n", MODEL]
    assert (bench.view.snapshot(MODEL).replicas, bench.view.models()) == ((), ["n"])


def test_view_unknown_replica_is_ignored() -> None:
    bench = Bench()
    bench.view.connect("a")
    bench.view.report("a", load())
    bench.view.disconnect("a")
    bench.view.remove("a")
    assert (bench.view.replicas(), bench.changes, bench.view.tenure_of("a"), bench.view.facts_of("a")) == ([], [], -1, None)
