"""Operating-system processes named by pid and start time, so that a recycled pid is never mistaken for ours."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True)
class ProcessIdentity:
    """A pid with the moment its process began (clock ticks since boot on Linux): unique until the next reboot."""

    pid: int
    start: str

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """The identity of a live process; None when there is none. A zombie counts as gone once its last thread has let go of its files."""
        try:
            if sys.platform == "linux":
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                is_gone = fields[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
                return None if is_gone else cls(pid, f"{_boot_id()}:{fields[19]}")
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else cls(pid, str(process.create_time()))
        except (OSError, psutil.Error):
            return None

    @property
    def is_alive(self) -> bool:
        return ProcessIdentity.of(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the pid still is this process."""
        if self.is_alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def descendants(pid: int) -> list[ProcessIdentity]:
    """Every live process below `pid`, at any depth."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [identity for process in below if (identity := ProcessIdentity.of(process.pid))]


def end(processes: Iterable[ProcessIdentity], grace_s: float) -> None:
    """SIGTERM all, wait up to `grace_s`, SIGKILL the rest and wait until they are gone. Blocks."""
    left = [process for process in processes if process.is_alive]
    for process in left:
        process.signal(signal.SIGTERM)
    left = _wait_gone(left, grace_s)
    for process in left:
        process.signal(signal.SIGKILL)
    _wait_gone(left, grace_s)


def _wait_gone(processes: list[ProcessIdentity], timeout_s: float) -> list[ProcessIdentity]:
    deadline = time.monotonic() + timeout_s
    while (processes := [process for process in processes if process.is_alive]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return processes


@dataclass(frozen=True)
class Spawned:
    """A running child: leader of its own process group, standard output and error in its log file."""

    identity: ProcessIdentity
    process: asyncio.subprocess.Process

    async def wait(self) -> int:
        """The exit status; negative for a signal."""
        return await self.process.wait()

    async def stop(self, grace_s: float) -> None:
        """SIGTERM the child, SIGKILL what is left of its group after `grace_s`; returns when the child is gone."""
        self.identity.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await self.process.wait()
        except TimeoutError:
            pass
        self.kill_group()
        await self.process.wait()

    def kill_group(self) -> None:
        """SIGKILL whatever still lives in the child's process group."""
        try:
            os.killpg(self.identity.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


async def spawn(argv: Sequence[str], environ: Mapping[str, str], log: Path, cwd: Path) -> Spawned:
    """Start `argv` so that it dies with this process (Linux), appending its output to `log`; raises OSError when it cannot start."""
    command = (sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *argv)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    identity = ProcessIdentity.of(process.pid) or ProcessIdentity(process.pid, "")
    return Spawned(identity, process)
