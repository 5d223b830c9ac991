"""A step loop that hangs: when that counts, what is said about it, and when it is given up."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from services.engine.step_loop import StepSize
from services.engine.watchdog import StepLoopHung, Watchdog, WatchdogBounds

TIMEOUT_S = 10


class Heart:
    """A heartbeat as old as the test says."""

    step_size = StepSize(7, 3, 40)
    age_s = 0.0

    def heartbeat_age_s(self) -> float:
        return self.age_s


class ManualClock:
    """Stands still until told otherwise."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def unix_ms(self) -> int:
        return 0


class Rig:
    """A watchdog with bounds of 20 s and 60 s that looks every second."""

    def __init__(self) -> None:
        self.heart = Heart()
        self.clock = ManualClock()
        self.has_work = True
        self.dog = Watchdog(self.heart, lambda: self.has_work, WatchdogBounds(20.0, 60.0), self.clock)
        for _ in range(2000):
            self.clock.now_s += 1.0
            assert self.dog.check()

    def check(self, age_s: float) -> bool:
        """What a look finds a second after the last one, when the heartbeat is so old."""
        self.heart.age_s = age_s
        self.clock.now_s += 1.0
        return self.dog.check()


@pytest.mark.parametrize(
    ("age_s", "has_work", "is_alive"),
    [(0.1, True, True), (20.0, True, True), (20.1, True, False), (60.0, True, False), (20.1, False, True), (1000.0, False, True)],
)
def test_watchdog_an_old_heartbeat_counts_only_while_there_is_work(age_s: float, has_work: bool, is_alive: bool) -> None:
    rig = Rig()
    rig.has_work = has_work
    assert rig.check(age_s) is is_alive
    assert not rig.dog.has_given_up


def test_watchdog_tells_of_each_hang_once_with_the_step_at_work(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    assert [rig.check(age_s) for age_s in (21.0, 22.0, 30.0)] == [False] * 3
    assert [fields(record)["step"] for record in caplog.records] == [7]
    assert (fields(caplog.records[0])["num_sequences"], fields(caplog.records[0])["num_tokens"]) == (3, 40)
    assert rig.check(0.1)
    assert not rig.check(21.0)
    assert len(caplog.records) == 2


def test_watchdog_gives_up_beyond_the_second_bound(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    with pytest.raises(StepLoopHung, match="61 s"):
        rig.check(61.0)
    assert rig.dog.has_given_up
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.CRITICAL]


def test_watchdog_dump_names_the_calls_of_every_thread_and_no_values(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    with stuck("what a caller has asked") as name:
        rig.check(21.0)
    stacks = fields(caplog.records[0])["stacks"]
    assert isinstance(stacks, dict)
    assert any(call.endswith(" hang_here") for call in stacks[name])
    assert any(call.endswith(" check") for call in stacks[threading.current_thread().name])
    assert "what a caller has asked" not in str(stacks)


def test_watchdog_dump_of_a_thread_without_a_name_has_its_number(caplog: pytest.LogCaptureFixture) -> None:
    frame = sys._getframe()
    frames: dict[int, FrameType] = {12: frame}
    dog = Watchdog(Heart(), lambda: True, WatchdogBounds(-1.0, 60.0), ManualClock(), lambda: frames)
    dog.check()
    assert list(fields(caplog.records[0])["stacks"]) == ["12"]  # type: ignore[call-overload]


def test_watchdog_of_a_process_that_was_stopped_gives_the_loop_its_whole_time_again() -> None:
    rig = Rig()
    assert rig.check(0.1)
    rig.clock.now_s += 3600.0
    assert rig.check(3601.0)
    assert [rig.check(3601.0 + age_s) for age_s in range(1, 22)] == [True] * 20 + [False]
    for age_s in range(22, 61):
        assert not rig.check(3601.0 + age_s)
    with pytest.raises(StepLoopHung):
        rig.check(3662.0)


@contextmanager
def stuck(secret: str) -> Iterator[str]:
    """A thread that hangs in a function of its own."""
    entered, go_on = threading.Event(), threading.Event()

    def hang_here(_text: str) -> None:
        entered.set()
        assert go_on.wait(TIMEOUT_S)

    thread = threading.Thread(target=hang_here, args=(secret,), name="stuck one")
    thread.start()
    assert entered.wait(TIMEOUT_S)
    try:
        yield thread.name
    finally:
        go_on.set()
        thread.join()


def fields(record: logging.LogRecord) -> dict[str, object]:
    return record.fields  # type: ignore[attr-defined,no-any-return]
