"""One supervised process: started when its dependencies are ready, restarted with back-off when it dies or hangs, stopped once."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from deploy.local.backoff import Backoff
from deploy.local.child_spec import ChildSpec
from deploy.local.mesh_status import ChildState, ChildStatus
from deploy.local.process import ProcessIdentity

_log = logging.getLogger(__name__)
_PROBE_INTERVAL_S = 0.1
LIVENESS_INTERVAL_S = 5.0
MAX_SILENCES = 3
"""Questions in a row without an answer that a ready child survives, less one; a probe bounds each by its own time-out."""


class Running(Protocol):
    """A started process. `wait` gives the exit status (negative: signal); `stop` ends it and all of its group within the grace."""

    @property
    def identity(self) -> ProcessIdentity: ...

    async def wait(self) -> int: ...

    async def stop(self, grace_s: float) -> None: ...

    def kill_group(self) -> None: ...


class Clock(Protocol):
    """Time as the supervisor needs it: seconds of the wall clock, monotonic seconds, and sleep."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


Launch = Callable[[ChildSpec], Awaitable[Running]]


class Child:
    """Runs one ChildSpec for ever; cancelling `run` is the one way to stop it, and returns when the process is gone."""

    def __init__(
        self, spec: ChildSpec, dependencies: Sequence["Child"], launch: Launch, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        self.spec = spec
        self.ready = asyncio.Event()
        self._dependencies = dependencies
        self._launch = launch
        self._clock = clock
        self._on_change = on_change
        self._backoff = Backoff()
        self._state = ChildState.WAITING
        self._since_s = clock.time()
        self._identity: ProcessIdentity | None = None
        self._num_starts = 0
        self._last_exit = ""

    def status(self) -> ChildStatus:
        """A snapshot for the status file."""
        return ChildStatus(
            name=self.spec.name,
            state=self._state,
            since_s=self._since_s,
            identity=self._identity,
            num_restarts=max(0, self._num_starts - 1),
            last_exit=self._last_exit,
            ports=self.spec.ports,
        )

    async def run(self) -> None:
        """Wait for the dependencies, then start, watch and restart until cancelled."""
        try:
            for dependency in self._dependencies:
                await dependency.ready.wait()
            while True:
                alive_s = await self._live_once()
                self._backoff = self._backoff.after_death(alive_s)
                self._become(ChildState.BACKING_OFF)
                await self._clock.sleep(self._backoff.delay_s)
        finally:
            self._become(ChildState.STOPPED)

    async def _live_once(self) -> float:
        """One life, from start to death; returns how many seconds it lasted."""
        born = self._clock.monotonic()
        self._num_starts += 1
        try:
            running = await self._launch(self.spec)
        except OSError as error:
            self._last_exit = f"could not start: {error.strerror}"
            return 0.0
        self._identity = running.identity
        _log.info("child started", extra={"fields": {"child": self.spec.name, "pid": running.identity.pid, "start": self._num_starts}})
        self._become(ChildState.STARTING)
        try:
            await self._watch(running)
        except asyncio.CancelledError:
            await running.stop(self.spec.grace_s)
            raise
        finally:
            self._identity = None
            self.ready.clear()
        running.kill_group()
        alive_s = self._clock.monotonic() - born
        _log.warning("child died", extra={"fields": {"child": self.spec.name, "end": self._last_exit, "alive_s": round(alive_s, 1)}})
        return alive_s

    async def _watch(self, running: Running) -> None:
        """Returns when the process is gone, by itself or because it gave no answer any more."""
        silent = ""
        async with asyncio.TaskGroup() as group:
            probing = group.create_task(self._until_silent())
            dying = group.create_task(running.wait())
            await asyncio.wait({probing, dying}, return_when=asyncio.FIRST_COMPLETED)
            if not dying.done():
                silent = "did not answer: "
                running.kill_group()
            self._last_exit = silent + describe_exit(await dying)
            probing.cancel()

    async def _until_silent(self) -> None:
        """Wait until the child is ready, and then until it does not answer any more."""
        await self._await_ready()
        num_silences = 0
        while num_silences < MAX_SILENCES:
            await self._clock.sleep(LIVENESS_INTERVAL_S)
            is_alive = self.spec.alive is None or await self.spec.alive()
            num_silences = 0 if is_alive else num_silences + 1

    async def _await_ready(self) -> None:
        while not await self.spec.probe():
            await self._clock.sleep(_PROBE_INTERVAL_S)
        self.ready.set()
        _log.info("child is ready", extra={"fields": {"child": self.spec.name}})
        self._become(ChildState.READY)

    def _become(self, state: ChildState) -> None:
        self._state = state
        self._since_s = self._clock.time()
        self._on_change()


def describe_exit(status: int) -> str:
    """An exit status in words: `exit status 3` or `killed by SIGKILL`."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
