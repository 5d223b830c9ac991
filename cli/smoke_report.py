"""The one JSON object of `inferway smoke`: a pure function of what happened."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cli.smoke_answer import Answer, Failure


@dataclass(frozen=True)
class SmokeReport:
    """Figures of one smoke run. `ledger_equal` is true when every answer has its row and no field differs."""

    requests: int
    ok: int
    failed: list[str]
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    output_tok_s: float
    ledger_equal: bool
    ledger_mismatches: list[str]
    output_tokens: int
    wall_s: float
    by_surface: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return self.ledger_equal and not self.failed and self.ok == self.requests


def make(outcomes: Sequence[Answer | Failure], wall_s: float, mismatches: Sequence[str]) -> SmokeReport:
    """Put the figures together."""
    answers = [one for one in outcomes if isinstance(one, Answer)]
    ttfts_ms = [1000 * one.ttft_s for one in answers if one.ttft_s is not None]
    output_tokens = sum(one.usage.completion_tokens for one in answers)
    return SmokeReport(
        requests=len(outcomes),
        ok=len(answers),
        failed=[f"{one.surface}: {one.reason}" for one in outcomes if isinstance(one, Failure)],
        ttft_ms_p50=_percentile(ttfts_ms, 50),
        ttft_ms_p95=_percentile(ttfts_ms, 95),
        output_tok_s=round(output_tokens / wall_s, 1) if wall_s > 0 else 0.0,
        ledger_equal=bool(answers) and not mismatches,
        ledger_mismatches=list(mismatches),
        output_tokens=output_tokens,
        wall_s=round(wall_s, 2),
        by_surface=dict(Counter(one.surface.value for one in answers)),
    )


def _percentile(values: Sequence[float], percent: int) -> float | None:
    if not values:
        return None
    if len(values) == 1:
        return round(values[0], 1)
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 1)
