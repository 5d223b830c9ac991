"""Finds out when the step loop hangs: says once where every thread is, and gives up when it does not come back."""

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from services.engine.step_loop import StepSize
from services.kit.clock import Clock

log = logging.getLogger(__name__)

MAX_FRAMES = 40
MAX_PAUSE_S = 2.0
"""Between two looks; after a longer one the whole process stood still, and nobody is late for that."""

Frames = Callable[[], Mapping[int, FrameType]]


class StepLoopHung(Exception):
    """The step loop has not come round for longer than it may: only another process can go on."""


class Heart(Protocol):
    """The step loop as a watchdog sees it."""

    @property
    def step_size(self) -> StepSize: ...

    def heartbeat_age_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class WatchdogBounds:
    """Ages of the heartbeat in seconds: from `late_s` on the replica is not healthy, from `exit_s` on it is given up."""

    late_s: float
    exit_s: float


class Watchdog:
    """Looks at the heartbeat when asked, which has to be every second or so. Lives in the event loop.

    An old heartbeat means something only while there is work, and only as far as this process was not stopped itself.
    """

    def __init__(
        self,
        heart: Heart,
        has_work: Callable[[], bool],
        bounds: WatchdogBounds,
        clock: Clock,
        frames: Frames = sys._current_frames,
    ) -> None:
        self._heart = heart
        self._has_work = has_work
        self._bounds = bounds
        self._clock = clock
        self._frames = frames
        self._looked_s = self._awake_s = clock.monotonic()
        self._has_told = False
        self.has_given_up = False

    def check(self) -> bool:
        """Whether the loop is alive. Logs one dump of all stacks per hang; raises StepLoopHung beyond the second bound."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s > MAX_PAUSE_S:
            self._awake_s = now_s
        self._looked_s = now_s
        age_s = min(self._heart.heartbeat_age_s(), now_s - self._awake_s)
        if age_s <= self._bounds.late_s or not self._has_work():
            self._has_told = False
            return True
        size = self._heart.step_size
        fields = {"age_s": round(age_s, 1), "step": size.step, "num_sequences": size.num_sequences, "num_tokens": size.num_tokens}
        if not self._has_told:
            self._has_told = True
            log.error("the step loop does not come round", extra={"fields": {**fields, "stacks": self._stacks()}})
        if age_s > self._bounds.exit_s:
            self.has_given_up = True
            log.critical("the step loop hangs: this process ends", extra={"fields": fields})
            raise StepLoopHung(f"the step loop has not come round for {age_s:.0f} s")
        return False

    def _stacks(self) -> dict[str, list[str]]:
        """Where every thread is, innermost call last; no values of variables, which may be a caller's text."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return {names.get(ident, str(ident)): _calls(frame) for ident, frame in self._frames().items()}


def _calls(frame: FrameType) -> list[str]:
    calls = traceback.extract_stack(frame)[-MAX_FRAMES:]
    return [f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in calls]
