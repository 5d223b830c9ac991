"""A server under test: how it is started, where it answers, and which processes belong to it."""

import asyncio
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from bench import drafts, processes
from bench.connection import Connection, Target
from bench.drafts import Drafts
from bench.prompts import random_prompt
from bench.recording import read_answer
from bench.shape import Shape

_STOP_S = 30.0
_POLL_S = 0.05


class ContenderError(Exception):
    """A server did not start or does not answer."""


class Contender(Protocol):
    """One server. Everything blocks."""

    @property
    def name(self) -> str:
        """As in the table."""
        ...

    @property
    def numerics(self) -> str:
        """Weights and activations, in words."""
        ...

    def start(self) -> float:
        """Start it; seconds until it answered. ContenderError when it does not."""
        ...

    def target(self) -> Target:
        """Where it answers, once started."""
        ...

    def processes(self) -> list[psutil.Process]:
        """All that belongs to it, parents first."""
        ...

    def rss_mb(self) -> float:
        """Greatest resident memory of the part that computes."""
        ...

    def drafts(self) -> Drafts | None:
        """What it has guessed ahead since it was started; None where it does not say."""
        ...

    def stop(self) -> None:
        """End it; safe to call twice, and for one that is frozen."""
        ...


@dataclass
class Server:
    """A peer: one process of one command."""

    name: str
    numerics: str
    command: Sequence[str]
    environ: Mapping[str, str]
    url: str
    log: Path
    start_timeout_s: float = 600.0
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self) -> float:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                list(self.command), env=os.environ | self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        while self._process.poll() is None:
            if answers(self.target()):
                return time.monotonic() - begin
            if time.monotonic() - begin > self.start_timeout_s:
                break
            time.sleep(_POLL_S)
        self.stop()
        raise ContenderError(f"{self.name} did not start; see {self.log}")

    def target(self) -> Target:
        return Target(self.url, "model")

    def processes(self) -> list[psutil.Process]:
        return processes.tree(self._process.pid) if self._process else []

    def rss_mb(self) -> float:
        return processes.peak_rss_mb(self.processes())

    def drafts(self) -> Drafts | None:
        return drafts.read(f"{self.url}/metrics")

    def stop(self) -> None:
        if self._process is None:
            return
        end(self.processes())
        self._process.wait()
        self._process = None


def end(group: Sequence[psutil.Process]) -> None:
    """SIGTERM to all, SIGKILL to those that stay; frozen ones are woken to hear it."""
    for process in group:
        if process.is_running():
            process.terminate()
    processes.thaw(group)
    _, left = psutil.wait_procs(group, timeout=_STOP_S)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=_STOP_S)


def answers(target: Target, timeout_s: float = 60.0) -> bool:
    """Whether a short request is answered: the one proof of readiness that is the same for every server. Warms it up, too."""

    async def ask() -> bool:
        async with Connection(target) as connection:
            return read_answer(await connection.ask(target.request(random_prompt(Shape(16, 0, 4), time.time_ns()), 4), timeout_s)).is_ok

    return asyncio.run(ask())


def wake(contender: Contender, patience_s: float = 60.0) -> None:
    """Thaw a frozen server and wait until it answers twice in a row; ContenderError when it does not."""
    processes.thaw(contender.processes())
    deadline, in_a_row = time.monotonic() + patience_s, 0
    while in_a_row < 2:
        in_a_row = in_a_row + 1 if answers(contender.target()) else 0
        if time.monotonic() > deadline:
            raise ContenderError(f"{contender.name} does not answer after it was stopped and continued")
        time.sleep(_POLL_S)
