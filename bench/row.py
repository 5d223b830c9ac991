"""One row of the result per server and point, and the comparison of rows: everything that is quoted is made here, by pure functions."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from bench import marks
from bench.drafts import Drafts, accepted_share, tokens_per_step
from bench.load import Outcome
from bench.marks import Mark
from bench.shape import Point

OURS = "inferway"
PLAIN = "inferway-plain"
"""Our mesh with speculation off: shown beside the others, judged by no mark."""
_GUESSING = "-ngram"
"""Ends the names of peers that speculate, too."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement of a point."""

    outcome: Outcome
    foreign_share: float
    """Processor time of everybody else meanwhile, as a share of one processor."""
    rss_mb: float
    cpu_shares: dict[str, float]
    """Of one processor, while the load ran, by part of the server."""
    drafts: Drafts | None = None
    """What the server guessed ahead meanwhile; None where it does not say."""


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over the runs of one server at one point."""

    engine: str
    numerics: str
    shape: str
    concurrency: int
    output_tok_s: float
    output_tok_s_runs: tuple[float, ...]
    ttft_ms_p50: float
    ttft_ms_p95: float
    itl_ms_p50: float
    itl_ms_p95: float
    itl_ms_p99: float
    tpot_ms_p50: float
    tokens_per_chunk: float
    cached_tokens: float
    rss_mb: float
    cpu_shares: dict[str, float]
    """Of one processor, by part of the server, greatest first; of the last run."""
    num_runs: int
    num_requests: int
    num_failed: int
    foreign_share: float
    """The greatest of the runs."""
    prompts: str
    """Random ids, or text."""
    accepted_share: float | None
    """Of tokens that were guessed ahead; None where none were, or the server does not say."""
    tokens_per_step: float | None
    """Output tokens of a sequence per step that it took part in; None where the server does not say."""

    @property
    def point(self) -> Point:
        return Point.parse(f"{self.shape}@{self.concurrency}")


def row_of(engine: str, numerics: str, point: Point, runs: Sequence[Run]) -> Row:
    """Summarise at least one run."""

    drafts = _sum([run.drafts for run in runs])

    def median(name: str) -> float:
        return round(statistics.median(float(getattr(run.outcome, name)) for run in runs), 2)

    return Row(
        engine=engine,
        numerics=numerics,
        shape=str(point.shape),
        concurrency=point.concurrency,
        output_tok_s=median("output_tok_s"),
        output_tok_s_runs=tuple(run.outcome.output_tok_s for run in runs),
        ttft_ms_p50=median("ttft_ms_p50"),
        ttft_ms_p95=median("ttft_ms_p95"),
        itl_ms_p50=median("itl_ms_p50"),
        itl_ms_p95=median("itl_ms_p95"),
        itl_ms_p99=median("itl_ms_p99"),
        tpot_ms_p50=median("tpot_ms_p50"),
        tokens_per_chunk=median("tokens_per_chunk"),
        cached_tokens=median("cached_tokens"),
        rss_mb=round(max(run.rss_mb for run in runs), 1),
        cpu_shares=dict(sorted(runs[-1].cpu_shares.items(), key=lambda part: -part[1])),
        num_runs=len(runs),
        num_requests=sum(run.outcome.num_requests for run in runs),
        num_failed=sum(run.outcome.num_failed for run in runs),
        foreign_share=round(max(run.foreign_share for run in runs), 3),
        prompts="text" if point.shape.is_text else "random ids",
        accepted_share=accepted_share(drafts),
        tokens_per_step=tokens_per_step(drafts, sum(run.outcome.output_tokens for run in runs)),
    )


def _sum(parts: Sequence[Drafts | None]) -> Drafts | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Drafts(*(sum(getattr(part, field.name) for part in known) for field in fields(Drafts)))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A row of ours beside the better peer's: rates above 1 and times below 1 are in our favour.

    The marks name peers that do not guess; those that do stand beside in a figure of their own.
    """

    engine: str
    """Which of ours."""
    shape: str
    concurrency: int
    best_peer: str
    """The one with the most output tokens per second."""
    output_tok_s: float
    ttft: float
    """To the peer with the shortest median, which need not be `best_peer`."""
    itl_p95: float
    wanted: float | None
    is_met: bool
    guessing_peer: str | None = None
    """The fastest of the peers that guess, where one was measured."""
    to_guessing: float | None = None
    """Our output tokens per second to its."""


def is_ours(engine: str) -> bool:
    """Whether a server is a mesh of ours; there may be several, of different numerics, and one without speculation."""
    return engine.startswith(OURS)


def ratios(rows: Iterable[Row]) -> list[Ratio]:
    """One for every row of ours at a point where a peer was measured, too."""
    by_point: dict[Point, list[Row]] = {}
    for row in rows:
        by_point.setdefault(row.point, []).append(row)
    found = []
    for point, group in by_point.items():
        others = [row for row in group if not is_ours(row.engine)]
        guessing = [row for row in others if row.engine.endswith(_GUESSING)]
        peers = [row for row in others if row not in guessing]
        found += [_ratio(point, row, peers, guessing) for row in group if peers and is_ours(row.engine)]
    return found


def _ratio(point: Point, ours: Row, peers: Sequence[Row], guessing: Sequence[Row]) -> Ratio:
    best, wanted = max(peers, key=lambda row: row.output_tok_s), marks.least_ratio(point)
    if ours.engine == PLAIN:
        wanted = None
    rate = quotient(ours.output_tok_s, best.output_tok_s)
    guesser = max(guessing, key=lambda row: row.output_tok_s, default=None)
    return Ratio(
        engine=ours.engine,
        shape=ours.shape,
        concurrency=ours.concurrency,
        best_peer=best.engine,
        output_tok_s=rate,
        ttft=quotient(ours.ttft_ms_p50, min(row.ttft_ms_p50 for row in peers)),
        itl_p95=quotient(ours.itl_ms_p95, min(row.itl_ms_p95 for row in peers)),
        wanted=wanted,
        is_met=wanted is None or rate >= wanted,
        guessing_peer=guesser.engine if guesser else None,
        to_guessing=quotient(ours.output_tok_s, guesser.output_tok_s) if guesser else None,
    )


def quotient(numerator: float, denominator: float) -> float:
    """Rounded to hundredths; NaN of no denominator."""
    return round(numerator / denominator, 2) if denominator else math.nan


def judge(rows: Sequence[Row], start_s: dict[str, float]) -> list[Mark]:
    """Every mark that the rows can speak about, for each of ours but the one without speculation."""
    ours = list(dict.fromkeys(row.engine for row in rows if is_ours(row.engine) and row.engine != PLAIN))
    return [mark for engine in ours for mark in (*_rate_marks(engine, rows), *_single_marks(engine, rows, start_s))]


def _rate_marks(engine: str, rows: Sequence[Row]) -> Iterator[Mark]:
    for ratio in ratios(rows):
        if ratio.engine != engine or ratio.wanted is None:
            continue
        where, rate = f"{ratio.shape} x {ratio.concurrency}", f"{ratio.output_tok_s:.2f} x {ratio.best_peer}"
        yield Mark(engine, f"output tok/s, {where}", f"≥ {ratio.wanted:.1f} x best peer", rate, ratio.is_met)
        yield Mark(engine, f"TTFT p50, {where}", "≤ 1.00 x best peer", f"{ratio.ttft:.2f} x", ratio.ttft <= marks.TTFT_RATIO)


def _single_marks(engine: str, rows: Sequence[Row], start_s: dict[str, float]) -> Iterator[Mark]:
    at_point = {row.engine: row for row in rows if row.point == marks.ITL_P95_POINT}
    if engine in at_point and "vllm" in at_point:
        tail = quotient(at_point[engine].itl_ms_p95, at_point["vllm"].itl_ms_p95)
        wanted = f"≤ {marks.ITL_P95_RATIO} x vLLM"
        yield Mark(engine, f"ITL p95, {marks.ITL_P95_POINT}", wanted, f"{tail:.2f} x", tail <= marks.ITL_P95_RATIO)
    if engine in start_s:
        taken = start_s[engine]
        yield Mark(engine, "start to ready, replica", f"≤ {marks.START_S} s", f"{taken:.1f} s", taken <= marks.START_S)
    memory = {name: max((row.rss_mb for row in rows if row.engine == name), default=0.0) for name in (engine, "vllm")}
    if all(memory.values()):
        share = quotient(memory[engine], memory["vllm"])
        yield Mark(engine, "peak RSS at equal KV", f"≤ {marks.RSS_RATIO} x vLLM", f"{share:.2f} x", share <= marks.RSS_RATIO)
