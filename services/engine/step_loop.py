"""The step thread: it alone owns the runner and the batcher, and does schedule -> run -> postprocess for as long as there is work."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from services.engine.batcher import Batcher, BatchLimits
from services.engine.bisection import Bisection, StepResult
from services.engine.block_hash import BlockHasher
from services.engine.block_pool import BlockPool
from services.engine.inbox import Commands, Inbox
from services.engine.plan import Plan, StepEvents
from services.engine.prefix_cache import PrefixCache
from services.engine.reports import Reports, StepReport
from services.engine.runner import ModelInfo, ModelRunner

log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.2
MAX_LOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class StepSize:
    """The step that was begun last."""

    step: int = 0
    num_sequences: int = 0
    num_tokens: int = 0


class StepLoop:
    """Loads the model in its own thread, then serves the inbox until that is closed.

    `loaded` resolves to the model when it is warm, or to the error that prevented it. `ended` resolves when the thread has ended: with an
    error when the runner itself is broken or a fault of our own came up; the process must then exit, as its sequences are lost. The runner
    counts as broken when it fails with a token of nobody's as well (see Bisection), cannot copy blocks twice in a row, or gave nobody a
    result in MAX_LOST_STEPS steps in a row.
    """

    def __init__(self, load: Callable[[], ModelRunner], limits: Callable[[ModelInfo], BatchLimits], inbox: Inbox, reports: Reports) -> None:
        self.loaded: Future[ModelInfo] = Future()
        self.ended: Future[None] = Future()
        for future in (self.loaded, self.ended):
            future.set_running_or_notify_cancel()  # From now on a waiter that gives up cannot cancel it.
        self._load = load
        self._limits = limits
        self._inbox = inbox
        self._reports = reports
        self._thread = threading.Thread(target=self._run, name="step", daemon=True)
        self._beat_at = time.monotonic()
        self._num_steps = 0
        self._num_lost = 0
        self._size = StepSize()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread after the inbox was closed."""
        self._thread.join(timeout_s)

    def heartbeat_age_s(self) -> float:
        """Seconds since the loop last came round; it comes round several times a second while idle, and after every step."""
        return time.monotonic() - self._beat_at

    @property
    def step_size(self) -> StepSize:
        """The step at work, or the last one. May be read from any thread."""
        return self._size

    def thread_id(self) -> int | None:
        """Identifier of the thread, once started."""
        return self._thread.ident

    def _run(self) -> None:
        try:
            runner = self._load()
            try:
                runner.warm_up()
                self.loaded.set_result(runner.info)
                self._serve(runner, self._new_batcher(runner.info))
            finally:
                runner.close()
        except BaseException as error:  # Whatever ends the thread has to reach the event loop: nobody else can see it.
            if not self.loaded.done():
                self.loaded.set_exception(error)
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)

    def _new_batcher(self, info: ModelInfo) -> Batcher:
        cache = PrefixCache(BlockPool(info.num_blocks, info.block_size), BlockHasher(info.block_size, info.name, info.version))
        return Batcher(self._limits(info), cache, info.eos_token_ids)

    def _serve(self, runner: ModelRunner, batcher: Batcher) -> None:
        bisection = Bisection(runner, self._beat)
        while not self._inbox.closed:
            self._beat()
            self._turn(runner, batcher, bisection)

    def _beat(self) -> None:
        self._beat_at = time.monotonic()

    def _turn(self, runner: ModelRunner, batcher: Batcher, bisection: Bisection) -> None:
        commands = self._inbox.take(0.0 if batcher.has_work else IDLE_WAIT_S)
        events = _obey(batcher, commands)
        plan = batcher.schedule(time.monotonic())
        events.ended += plan.ended
        if events.ended or commands.starts:  # Told before the step, which may take long.
            self._reports.put(StepReport(self._num_steps, events, batcher.load()))
        if plan.slices:
            begin = time.monotonic()
            self._num_steps += 1
            self._size = StepSize(self._num_steps, len(plan.slices), plan.num_tokens)
            self._copy_blocks(runner, plan)
            result = bisection.compute(self._num_steps, plan.slices)
            events = self._postprocess(batcher, result)
            duration_s, num_failed = time.monotonic() - begin, result.num_failed_runs
            report = StepReport(self._num_steps, events, batcher.load(), plan.num_tokens, duration_s, plan.begun, num_failed)
            self._reports.put(report)

    def _copy_blocks(self, runner: ModelRunner, plan: Plan) -> None:
        """Carry out the plan's copies, twice if need be: neither sources nor targets are written before the step."""
        if not plan.copies:
            return
        try:
            runner.copy_blocks(plan.copies)
        except Exception as error:  # As in Bisection, only that here nobody's sequence can be at fault.
            log.error("blocks could not be copied", exc_info=error, extra={"fields": {"step": self._num_steps}})
            runner.copy_blocks(plan.copies)

    def _postprocess(self, batcher: Batcher, result: StepResult) -> StepEvents:
        events = batcher.postprocess(Plan(slices=result.computed), result.outputs)
        if result.culprits:
            events.ended += batcher.fail(Plan(slices=result.culprits)).ended
        if any(output.error is None for output in result.outputs):
            self._num_lost = 0
        else:
            self._num_lost += 1
            if self._num_lost >= MAX_LOST_STEPS:
                raise RuntimeError("no sequence got a result for many steps")
        return events


def _obey(batcher: Batcher, commands: Commands) -> StepEvents:
    """Carry out what the event loop said."""
    ends = [batcher.add(sequence) for sequence in commands.starts]
    ends += [batcher.stop(sequence_id, reason) for sequence_id, reason in commands.stops.items()]
    return StepEvents(ended=[end for end in ends if end is not None])
