"""The supervisor process: takes the lock of its INFERWAY_HOME, runs the children, and keeps the status file and the logs in order."""

import asyncio
import fcntl
import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deploy.local import broker, mesh, process, rotation
from deploy.local.broker import BrokerKind
from deploy.local.child import Running
from deploy.local.child_spec import ChildSpec
from deploy.local.errors import LocalError
from deploy.local.home import Home
from deploy.local.mesh_status import ChildStatus, MeshStatus
from deploy.local.process import ProcessIdentity
from deploy.local.settings import Settings
from deploy.local.supervisor import Supervisor
from services.kit import logs

_log = logging.getLogger(__name__)


class SystemClock:
    """Real time."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class StatusBoard:
    """Writes the status file from what the supervisor knows and from the processes below it."""

    def __init__(self, settings: Settings, kind: BrokerKind, path: Path) -> None:
        own = ProcessIdentity.of(os.getpid())
        assert own is not None  # a running process has an identity
        self._own = own
        self._settings = settings
        self._kind = kind
        self._path = path
        self._children: tuple[ChildStatus, ...] = ()

    def publish(self, children: tuple[ChildStatus, ...]) -> None:
        """Take over the new states and write."""
        self._children = children
        self.refresh()

    def refresh(self) -> None:
        """Write again, with the descendants of this moment: a later command ends exactly those if this process is killed.

        A file that cannot be written (a full disk) is logged and tried again at the next occasion: it must not take the mesh down.
        """
        status = MeshStatus(
            supervisor=self._own,
            port_base=self._settings.port_base,
            runner=self._settings.runner.value,
            broker=self._kind.value,
            bootstrap=broker.bootstrap(self._settings),
            children=self._children,
            processes=tuple(process.descendants(self._own.pid)),
        )
        try:
            status.write(self._path)
        except OSError as error:
            _log.error("the status file cannot be written", extra={"fields": {"error": error.strerror}})


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold `lock` for this process; raises LocalError when another process holds it. The kernel drops it at any death."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LocalError(
                f"Another inferway command is at work on {lock.parent.parent}.", "Wait for it to end, or set another INFERWAY_HOME."
            ) from error
        yield


async def supervise(settings: Settings, environ: Mapping[str, str], stop: asyncio.Event) -> None:
    """Run the mesh until `stop`. Everything that the children need on disk must have been prepared."""
    home = settings.home
    kind = broker.decide(settings, environ).kind
    board = StatusBoard(settings, kind, home.status_file)
    specs = mesh.specs(settings, kind, environ)

    def keep_house() -> None:
        board.refresh()
        for spec in specs:
            rotate_log(home.log(spec.name))

    with exclusive(home.supervisor_lock):
        await Supervisor(specs, Launcher(home, environ), SystemClock(), board.publish, keep_house).run(stop)


def rotate_log(log: Path) -> None:
    """Keep one log below its bound; a failure is logged and left to the next round."""
    try:
        rotation.rotate(log)
    except OSError as error:
        _log.error("a log cannot be rotated", extra={"fields": {"log": log.name, "error": error.strerror}})


class Launcher:
    """Starts a child with the mesh's environment under its own, writing to its own log."""

    def __init__(self, home: Home, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ

    async def __call__(self, spec: ChildSpec) -> Running:
        return await process.spawn(spec.argv, {**self._environ, **spec.environ}, self._home.log(spec.name), cwd=self._home.run)


async def main(environ: Mapping[str, str]) -> None:
    """Supervise until SIGTERM or SIGINT."""
    logs.set_up("supervisor", "INFO")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await supervise(Settings.from_environ(environ), environ, stop)
