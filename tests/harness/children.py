"""Stand-ins for the supervisor's surroundings: a clock that a test moves, and processes that die when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from deploy.local.child_spec import ChildSpec
from deploy.local.mesh_status import ChildState, ChildStatus
from deploy.local.process import ProcessIdentity

TIMEOUT_S = 5.0


class ManualClock:
    """Time that stands still until `advance`. `slept` holds every pause that was begun."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        over = asyncio.Event()
        self._sleepers.append((self.now + seconds, over))
        await over.wait()

    def advance(self, seconds: float) -> None:
        """Move on and wake whoever has slept long enough."""
        self.now += seconds
        for wake_at, over in self._sleepers:
            if wake_at <= self.now:
                over.set()


@dataclass
class FakeProcess:
    """A process that runs until `die` or `stop`."""

    identity: ProcessIdentity
    stopped_with: list[float] = field(default_factory=list)
    num_group_kills: int = 0
    _exit: asyncio.Queue[int] = field(default_factory=lambda: asyncio.Queue(1))

    async def wait(self) -> int:
        return await self._exit.get()

    async def stop(self, grace_s: float) -> None:
        self.stopped_with.append(grace_s)

    def kill_group(self) -> None:
        self.num_group_kills += 1
        if self._exit.empty():
            self._exit.put_nowait(-9)

    def die(self, status: int) -> None:
        """End by itself with an exit status."""
        self._exit.put_nowait(status)


class FakeLauncher:
    """Starts FakeProcesses and remembers them by child, in order. `failures` makes that many starts fail."""

    def __init__(self, failures: int = 0) -> None:
        self.started: dict[str, list[FakeProcess]] = {}
        self.order: list[str] = []
        self._failures = failures

    async def __call__(self, spec: ChildSpec) -> FakeProcess:
        if self._failures:
            self._failures -= 1
            raise FileNotFoundError(2, "No such file or directory")
        process = FakeProcess(ProcessIdentity(1000 + len(self.order), "fake"))
        self.started.setdefault(spec.name, []).append(process)
        self.order.append(spec.name)
        return process


class Board:
    """Receives statuses; a test waits until they are as it wants."""

    def __init__(self) -> None:
        self.statuses: tuple[ChildStatus, ...] = ()
        self._changed = asyncio.Event()

    def publish(self, statuses: tuple[ChildStatus, ...]) -> None:
        self.statuses = statuses
        self._changed.set()

    def states(self) -> dict[str, ChildState]:
        return {status.name: status.state for status in self.statuses}

    async def until(self, wanted: Callable[[dict[str, ChildState]], bool]) -> None:
        """Return when the states are as wanted; TimeoutError otherwise."""
        async with asyncio.timeout(TIMEOUT_S):
            while not wanted(self.states()):
                self._changed.clear()
                await self._changed.wait()

    async def until_all(self, state: ChildState) -> None:
        """Every child is in `state`."""
        await self.until(lambda states: bool(states) and set(states.values()) == {state})
