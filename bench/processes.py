"""Processes of the servers under test and of everybody else: stop and continue them, count their processor time and memory."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import psutil

_MIB = 1024 * 1024
_PREFERRED_NICE = -18
_IDLE_S = 0.2
"""Processor seconds per second; a mesh that was just woken takes more, until all have found each other again."""


def tree(pid: int) -> list[psutil.Process]:
    """The process and all below it, parents first; empty when it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def freeze(processes: Sequence[psutil.Process]) -> None:
    """Take the processor away from all of them; parents first, so that none sees a child that does not move."""
    _signal(processes, signal.SIGSTOP)


def thaw(processes: Sequence[psutil.Process]) -> None:
    """Let all of them go on, children first."""
    _signal(list(reversed(processes)), signal.SIGCONT)


def prefer(processes: Sequence[psutil.Process]) -> None:
    """Put the sessions of these processes before all others on a machine with other work; needs root and Linux's scheduler autogroups."""
    for process in processes:
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/autogroup", "w", encoding="utf-8") as file:
            file.write(str(_PREFERRED_NICE))


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Processor seconds that living ones have used."""
    return sum(_asked(process, lambda one: one.cpu_times().user + one.cpu_times().system) for process in processes)


def cpu_by_part_s(processes: Iterable[psutil.Process]) -> dict[str, float]:
    """Processor seconds that living ones have used, by what they run."""
    found: dict[str, float] = {}
    for process in processes:
        part = part_of(_command(process))
        found[part] = found.get(part, 0.0) + cpu_s([process])
    return found


def part_of(command: Sequence[str]) -> str:
    """The last name of a Python module that is run as one, else the program's."""
    if "-m" in command[:-1] and os.path.basename(command[0]).startswith("python"):
        return command[command.index("-m") + 1].removeprefix("services.")
    return os.path.basename(command[0]) if command else "unknown"


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def peak_rss_mb(processes: Iterable[psutil.Process]) -> float:
    """Each process's own greatest resident set, added up, in MiB: pages that several share count for each of them."""
    return sum(_asked(process, _peak_bytes) for process in processes) / _MIB


def _asked(process: psutil.Process, question: Callable[[psutil.Process], float]) -> float:
    try:
        return question(process)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


def _peak_bytes(process: psutil.Process) -> float:
    try:
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
            return next((1024.0 * int(line.split()[1]) for line in file if line.startswith("VmHWM")), 0.0)
    except OSError:
        return float(process.memory_info().rss)


@dataclass(frozen=True, slots=True)
class CpuReading:
    """Processor seconds at one moment."""

    at_s: float
    machine_s: float
    """Of all processors together, stolen time included: somebody else had it."""
    own_s: float
    """Of the processes under test and of this one."""

    @classmethod
    def take(cls, processes: Sequence[psutil.Process]) -> "CpuReading":
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        me = os.times()
        return cls(time.perf_counter(), busy, cpu_s(processes) + me.user + me.system)

    def foreign_share(self, later: "CpuReading") -> float:
        """Processor time of everybody else between the two readings, as a share of one processor; never negative."""
        foreign = (later.machine_s - self.machine_s) - (later.own_s - self.own_s)
        return max(0.0, foreign / (later.at_s - self.at_s))


def wait_until_quiet(processes: Callable[[], Sequence[psutil.Process]], limit: float, patience_s: float) -> bool:
    """Wait until others took less than `limit` of one processor during a second, and the idle server under test hardly any more.

    False when it did not come to that within `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = CpuReading.take(processes())
        time.sleep(1.0)
        after = CpuReading.take(processes())
        if before.foreign_share(after) < limit and after.own_s - before.own_s < _IDLE_S:
            return True
    return False
