"""The step thread: it alone owns the runner and the batcher, and does schedule -> run -> postprocess for as long as there is work."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from services.engine.batcher import Batcher, BatchLimits, Plan, StepEvents
from services.engine.block_pool import BlockPool
from services.engine.inbox import Inbox
from services.engine.reports import Reports, StepReport
from services.engine.runner import ModelInfo, ModelRunner

log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.2
MAX_FAILURES_IN_A_ROW = 2


class StepLoop:
    """Loads the model in its own thread, then serves the inbox until that is closed.

    `loaded` resolves to the model when it is warm, or to the error that prevented it. `ended` resolves when the thread has ended: with an
    error when two steps in a row failed or a fault of our own came up; the process must then exit, as its sequences are lost.
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
        self._num_failures = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread after the inbox was closed."""
        self._thread.join(timeout_s)

    def heartbeat_age_s(self) -> float:
        """Seconds since the loop last came round; it comes round several times a second while idle, and after every step."""
        return time.monotonic() - self._beat_at

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
        return Batcher(self._limits(info), BlockPool(info.num_blocks, info.block_size), info.eos_token_ids)

    def _serve(self, runner: ModelRunner, batcher: Batcher) -> None:
        while not self._inbox.closed:
            self._beat_at = time.monotonic()
            self._turn(runner, batcher)

    def _turn(self, runner: ModelRunner, batcher: Batcher) -> None:
        events = self._obey(batcher)
        plan = batcher.schedule(time.monotonic())
        events.ended += plan.ended
        if events.ended:  # Told before the step, which may take long.
            self._reports.put(StepReport(self._num_steps, events, batcher.load()))
        if plan.slices:
            begin = time.monotonic()
            events = self._step(runner, batcher, plan)
            duration_s = time.monotonic() - begin
            self._reports.put(StepReport(self._num_steps, events, batcher.load(), plan.num_tokens, duration_s, plan.begun))

    def _obey(self, batcher: Batcher) -> StepEvents:
        """Carry out what the event loop said; waits for it when there is nothing else to do."""
        commands = self._inbox.take(0.0 if batcher.has_work else IDLE_WAIT_S)
        ends = [batcher.add(sequence) for sequence in commands.starts]
        ends += [batcher.stop(sequence_id, reason) for sequence_id, reason in commands.stops.items()]
        return StepEvents(ended=[end for end in ends if end is not None])

    def _step(self, runner: ModelRunner, batcher: Batcher, plan: Plan) -> StepEvents:
        self._num_steps += 1
        try:
            outputs = runner.step(plan.slices)
        except Exception:  # A runner may fail in any way; the fault must not outlive this step's sequences.
            log.exception("a step failed", extra={"fields": {"step": self._num_steps, "num_sequences": len(plan.slices)}})
            self._num_failures += 1
            if self._num_failures >= MAX_FAILURES_IN_A_ROW:
                raise
            return batcher.fail(plan)
        self._num_failures = 0
        return batcher.postprocess(plan, outputs)
