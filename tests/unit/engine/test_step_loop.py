"""The step thread: what it tells, when it counts as alive, and what ends it."""

import threading
from collections.abc import Callable, Iterator

import pytest

from services.engine.batcher import BatchLimits
from services.engine.inbox import Inbox
from services.engine.reports import Reports, StepReport
from services.engine.runner import ModelRunner, SequenceSlice, StepOutput
from services.engine.sequence import EndReason
from services.engine.step_loop import IDLE_WAIT_S, MAX_LOST_STEPS, StepLoop
from tests.harness.batching import alone, sequence, sim_runner
from tests.harness.eventually import eventually

TIMEOUT_S = 10


class Thread:
    """A step loop and the far end of its queues."""

    def __init__(self, load: Callable[[], ModelRunner]) -> None:
        self.inbox = Inbox(100)
        self._arrived = threading.Semaphore(0)
        self.reports = Reports(100, self._arrived.release)
        self.loop = StepLoop(load, lambda info: BatchLimits(4, 16, 4, info.max_context_tokens), self.inbox, self.reports)
        self.loop.start()

    def until_ends(self, count: int) -> list[StepReport]:
        """Reports up to the one with the last of `count` ends."""
        reports: list[StepReport] = []
        while sum(len(report.events.ended) for report in reports) < count:
            assert self._arrived.acquire(timeout=TIMEOUT_S)
            reports += self.reports.take_all()
        return reports


@pytest.fixture
def threads() -> Iterator[Callable[[Callable[[], ModelRunner]], Thread]]:
    made: list[Thread] = []

    def make(load: Callable[[], ModelRunner]) -> Thread:
        made.append(Thread(load))
        return made[-1]

    yield make
    for thread in made:
        thread.inbox.close()
        thread.reports.close()
        thread.loop.join(TIMEOUT_S)


Make = Callable[[Callable[[], ModelRunner]], Thread]


class Broken:
    """A runner that fails in the chosen steps."""

    def __init__(self, *failing: int) -> None:
        self._inner = sim_runner()
        self._failing = failing
        self._num_steps = 0
        self.info = self._inner.info
        self.closed = False

    def step(self, slices: object) -> object:
        self._num_steps += 1
        if self._num_steps in self._failing:
            raise MemoryError
        return self._inner.step(slices)  # type: ignore[arg-type]

    def warm_up(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def test_step_loop_serves_until_its_inbox_is_closed(threads: Make) -> None:
    thread = threads(sim_runner)
    assert thread.loop.loaded.result(TIMEOUT_S).name == "sim"
    thread.inbox.start(sequence(1))
    reports = thread.until_ends(1)
    assert [token.token_id for report in reports for token in report.events.sampled] == alone(sequence(1))
    assert [report.step for report in reports] == list(range(5))
    assert reports[-1].load.num_used_blocks == 0
    thread.inbox.close()
    thread.loop.ended.result(TIMEOUT_S)


def test_step_loop_stop_takes_effect_before_the_next_step(threads: Make) -> None:
    thread = threads(sim_runner)
    thread.inbox.start(sequence(1, max_output_tokens=900))
    thread.inbox.stop(1, EndReason.CANCELLED)
    (report,) = thread.until_ends(1)[-1:]
    assert report.events.ended[0].reason is EndReason.CANCELLED
    assert (report.load.num_used_blocks, report.load.num_running) == (0, 0)


def test_step_loop_stop_of_an_unknown_sequence_is_ignored(threads: Make) -> None:
    thread = threads(sim_runner)
    thread.inbox.stop(99, EndReason.CANCELLED)
    thread.inbox.start(sequence(1))
    assert [ended.sequence_id for report in thread.until_ends(1) for ended in report.events.ended] == [1]


async def test_step_loop_beats_while_idle_and_not_while_a_step_hangs(threads: Make) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Hanging(Broken):
        def step(self, slices: object) -> object:
            entered.set()
            assert go_on.wait(TIMEOUT_S)
            return super().step(slices)

    thread = threads(Hanging)  # type: ignore[arg-type]
    thread.loop.loaded.result(TIMEOUT_S)
    ages: list[float] = []

    def has_beaten() -> bool:
        ages.append(thread.loop.heartbeat_age_s())
        return ages[-1] < max(ages)

    await eventually(has_beaten, TIMEOUT_S)
    thread.inbox.start(sequence(1))
    assert entered.wait(TIMEOUT_S)
    await eventually(lambda: thread.loop.heartbeat_age_s() > 3 * IDLE_WAIT_S, TIMEOUT_S)
    go_on.set()
    thread.until_ends(1)


def test_step_loop_step_that_fails_once_costs_nobody_an_answer(threads: Make) -> None:
    thread = threads(lambda: Broken(1, 4))  # type: ignore[arg-type, return-value]
    thread.inbox.start(sequence(1))
    reports = thread.until_ends(1)
    assert reports[-1].events.ended[0].reason is EndReason.LENGTH
    assert [token.token_id for report in reports for token in report.events.sampled] == alone(sequence(1))


def test_step_loop_tells_of_a_taken_sequence_before_its_step(threads: Make) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Broken):
        def step(self, slices: object) -> object:
            entered.set()
            assert go_on.wait(TIMEOUT_S)
            return super().step(slices)

    thread = threads(Slow)  # type: ignore[arg-type]
    thread.inbox.start(sequence(1))
    assert entered.wait(TIMEOUT_S)
    (report,) = thread.reports.take_all()
    assert (report.num_tokens, report.load.num_running) == (0, 1)
    assert (thread.loop.step_size.step, thread.loop.step_size.num_sequences, thread.loop.step_size.num_tokens) == (1, 1, 5)
    go_on.set()
    thread.until_ends(1)


def test_step_loop_ends_when_the_runner_fails_without_the_sequence_too_and_closes_it(threads: Make) -> None:
    runner = Broken(*range(1, 20))
    thread = threads(lambda: runner)  # type: ignore[arg-type, return-value]
    thread.inbox.start(sequence(1))
    with pytest.raises(MemoryError):
        thread.loop.ended.result(TIMEOUT_S)
    assert runner.closed


@pytest.mark.parametrize("num_lost", [MAX_LOST_STEPS - 1, MAX_LOST_STEPS])
def test_step_loop_ends_when_nobody_gets_a_result_for_many_steps(threads: Make, num_lost: int) -> None:
    class Blind(Broken):
        """Its numbers are not finite in the first steps."""

        def step(self, slices: list[SequenceSlice]) -> object:  # type: ignore[override]
            self._num_steps += 1
            if self._num_steps <= num_lost:
                return [StepOutput(part.sequence_id, None, error="not finite") for part in slices]
            return self._inner.step(slices)

    thread = threads(Blind)  # type: ignore[arg-type]
    for number in range(1, MAX_LOST_STEPS):
        thread.inbox.start(sequence(number))
        assert thread.until_ends(1)[-1].events.ended[0].reason is EndReason.NON_FINITE_LOGITS
    thread.inbox.start(sequence(MAX_LOST_STEPS))
    if num_lost == MAX_LOST_STEPS:
        with pytest.raises(RuntimeError, match="no sequence"):
            thread.loop.ended.result(TIMEOUT_S)
    else:
        assert thread.until_ends(1)[-1].events.ended[0].reason is EndReason.LENGTH


def test_step_loop_that_cannot_load_says_why(threads: Make) -> None:
    def load() -> ModelRunner:
        raise ValueError("no such device")

    thread = threads(load)
    with pytest.raises(ValueError, match="no such device"):
        thread.loop.loaded.result(TIMEOUT_S)
    with pytest.raises(ValueError, match="no such device"):
        thread.loop.ended.result(TIMEOUT_S)


def test_reports_full_makes_the_writer_wait_for_the_reader() -> None:
    reports = Reports(2, lambda: None)
    reports.put(StepReport(1))
    reports.put(StepReport(2))
    writer = threading.Thread(target=reports.put, args=(StepReport(3),))
    writer.start()
    writer.join(0.05)
    assert writer.is_alive()
    assert [report.step for report in reports.take_all()] == [1, 2]
    writer.join(TIMEOUT_S)
    assert [report.step for report in reports.take_all()] == [3]


def test_inbox_full_or_closed_takes_no_start() -> None:
    inbox = Inbox(1)
    assert inbox.start(sequence(1))
    assert not inbox.start(sequence(2))
    assert [taken.sequence_id for taken in inbox.take(0).starts] == [1]
    inbox.close()
    assert not inbox.start(sequence(3))


def test_inbox_of_two_stops_the_first_reason_stands() -> None:
    inbox = Inbox(1)
    inbox.stop(1, EndReason.STOP)
    inbox.stop(1, EndReason.CANCELLED)
    assert inbox.take(0).stops == {1: EndReason.STOP}
    assert inbox.take(0).stops == {}
