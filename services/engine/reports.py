"""What the step thread tells the event loop: one report per step, in order."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.engine.batch_load import BatchLoad
from services.engine.plan import Begun, StepEvents


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one turn of the step loop did."""

    step: int
    """Steps computed so far; a turn that only ended sequences carries the number of the last one."""
    events: StepEvents = field(default_factory=StepEvents)
    load: BatchLoad = field(default_factory=BatchLoad)
    num_tokens: int = 0
    """Tokens computed by this step; 0 when none was."""
    duration_s: float = 0.0
    """Time in the runner."""
    begun: Sequence[Begun] = ()
    """Sequences that were admitted for this step."""
    num_failed_runs: int = 0
    """Calls of the runner that failed in this step."""


class Reports:
    """One writer, one reader. `notify` is called, in the writer's thread, when there is something new to read.

    Bounded: a reader that is `max_reports` behind makes the writer wait, which shows as an old heartbeat.
    """

    def __init__(self, max_reports: int, notify: Callable[[], None]) -> None:
        self._max_reports = max_reports
        self._notify = notify
        self._reports: deque[StepReport] = deque()
        self._room = threading.Condition()
        self._closed = False

    def put(self, report: StepReport) -> None:
        """Hand a report over; waits for room. After `close` it is dropped: nobody reads."""
        with self._room:
            self._room.wait_for(lambda: self._closed or len(self._reports) < self._max_reports)
            if self._closed:
                return
            self._reports.append(report)
            is_first = len(self._reports) == 1
        if is_first:
            self._notify()

    def take_all(self) -> list[StepReport]:
        """All reports that wait, oldest first; never waits."""
        with self._room:
            reports = list(self._reports)
            self._reports.clear()
            self._room.notify()
            return reports

    def close(self) -> None:
        """The reader has gone: later reports are dropped and no writer waits."""
        with self._room:
            self._closed = True
            self._room.notify()
