"""Measures servers in turns: per point each of them, the order reversed every repeat, while the others are stopped."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench import processes
from bench.contender import Contender, ContenderError, wake
from bench.drafts import tokens_per_step
from bench.load import run_point
from bench.processes import CpuReading
from bench.row import Row, Run, row_of
from bench.shape import Point, Shape

_MAX_TRIES = 3
_LONG_S = 20.0
"""A run as long as this is not made again when it was disturbed: that is a smaller part of it, and a session has to end."""
_ONCE_S = 12.0
"""Who takes as long as this for a point is measured there once, for the same reason."""
_NUM_FILLING = 6
"""Most requests that bring a shared beginning into the cache before a run."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """How much others may disturb a measurement before it is made again, and how long to wait for them to stop."""

    limit: float = 0.08
    """Share of one processor."""
    patience_s: float = 20.0


@dataclass
class Rounds:
    """All measurements of one session. `say` hears every one of them. A server that no longer answers leaves `contenders`."""

    contenders: Sequence[Contender]
    quiet: Quiet
    say: Callable[[str], None]
    deadline_s: float
    """On the monotonic clock; no point is begun after it."""
    takes_part: Callable[[str, Point], bool] = lambda name, point: True
    """Whether the server of a name is measured at a point."""
    _serial: int = field(default_factory=time.time_ns)

    def measure(self, points: Sequence[Point], repeats: int) -> list[Row]:
        """The rows of every point that was begun in time. Leaves all servers stopped."""
        rows: list[Row] = []
        for one in self.contenders:
            processes.freeze(one.processes())
        for point in points:
            if time.monotonic() > self.deadline_s:
                self.say(f"no time left for {point}")
                continue
            rows += self._point(point, repeats)
        return rows

    def _point(self, point: Point, repeats: int) -> list[Row]:
        runs: dict[str, list[Run]] = {one.name: [] for one in self.contenders}
        for repeat in range(repeats):
            group = [one for one in self.contenders if self.takes_part(one.name, point) and not _is_long(runs[one.name], _ONCE_S)]
            first_serial = self._next(_MAX_TRIES * _num_prompts(point))
            for one in group if repeat % 2 == 0 else group[::-1]:
                try:
                    wake(one)
                except ContenderError as error:
                    self.say(f"! {error}; it is left out from now on")
                    self.contenders = [other for other in self.contenders if other is not one]
                    continue
                run = self._cleanest(one, point, first_serial)
                processes.freeze(one.processes())
                runs[one.name].append(run)
                self.say(_line(point, one, run))
        return [row_of(one.name, one.numerics, point, runs[one.name]) for one in self.contenders if runs[one.name]]

    def _cleanest(self, one: Contender, point: Point, first_serial: int) -> Run:
        """One undisturbed run, or the least disturbed of several. Prompts are numbered from `first_serial`: the same for every server."""
        tries: list[Run] = []
        for attempt in range(_MAX_TRIES):
            serial = first_serial + attempt * _num_prompts(point)
            self._fill_cache(one, point, serial + point.num_requests)
            is_quiet = processes.wait_until_quiet(one.processes, self.quiet.limit, self.quiet.patience_s)
            tries.append(self._run(one, point, serial))
            is_final = not is_quiet or _is_long(tries, _LONG_S) or time.monotonic() > self.deadline_s
            if is_final or tries[-1].foreign_share < self.quiet.limit:
                break
        return min(tries, key=lambda run: run.foreign_share)

    def _fill_cache(self, one: Contender, point: Point, first_serial: int) -> None:
        """Where prompts share a beginning it has been computed before, as that of a system prompt has."""
        if point.shape.shared:
            shape = Shape(point.shape.prompt, point.shape.shared, 1)
            asyncio.run(run_point(one.target(), Point(shape, 1), first_serial))

    def _run(self, one: Contender, point: Point, first_serial: int) -> Run:
        group = one.processes()
        drafts, cpu, before = one.drafts(), processes.cpu_by_part_s(group), CpuReading.take(group)
        outcome = asyncio.run(run_point(one.target(), point, first_serial))
        foreign = before.foreign_share(CpuReading.take(one.processes()))
        after = processes.cpu_by_part_s(group)
        shares = {part: round((used - cpu.get(part, 0.0)) / outcome.wall_s, 3) for part, used in after.items()}
        checked = one.drafts()
        return Run(outcome, round(foreign, 3), one.rss_mb(), shares, checked.since(drafts) if checked and drafts else None)

    def _next(self, count: int) -> int:
        """Prompt numbers that no server has seen."""
        self._serial += count
        return self._serial - count


def _num_prompts(point: Point) -> int:
    """Of one try of a run."""
    return point.num_requests + _NUM_FILLING


def _is_long(runs: Sequence[Run], limit_s: float) -> bool:
    return bool(runs) and runs[-1].outcome.wall_s > limit_s


def _line(point: Point, one: Contender, run: Run) -> str:
    found = run.outcome
    failed = f"  {found.num_failed} FAILED: {found.failure}" if found.num_failed else ""
    per_step = tokens_per_step(run.drafts, found.output_tokens)
    speculation = f"  {per_step} tokens per step" if per_step else ""
    return (
        f"{point!s:18} {one.name:15} {found.output_tok_s:8.1f} tok/s  TTFT {found.ttft_ms_p50:8.1f}  ITL {found.itl_ms_p50:6.1f} / "
        f"{found.itl_ms_p95:6.1f} ms  others {100 * run.foreign_share:3.0f} %{speculation}{failed}"
    )
