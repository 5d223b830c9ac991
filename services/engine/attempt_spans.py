"""Traces of attempts: one span each, made when the attempt has ended: nothing stays open, and a running attempt pays nothing."""

from collections.abc import Iterator

from services.engine.attempt import Attempt
from services.engine.observer import Observer
from services.engine.outcome import AttemptEnd, Failed
from services.engine.reports import StepReport
from services.engine.sequence import EndReason
from services.kit.tracing import Attributes, Tracer

_ENDS_BY_OTHERS = {EndReason.CANCELLED: "CANCELLED", EndReason.DEADLINE: "DEADLINE_EXCEEDED"}


class AttemptSpans:
    """An Observer that tells `counts` everything, and the tracer of attempts that their gateway traces."""

    def __init__(self, tracer: Tracer, counts: Observer) -> None:
        self._tracer = tracer
        self._counts = counts

    def step(self, report: StepReport) -> None:
        """See Observer."""
        self._counts.step(report)

    def tokens(self, attempt: Attempt, num_tokens: int, now_s: float) -> None:
        """See Observer."""
        self._counts.tokens(attempt, num_tokens, now_s)

    def refused(self, reason: str) -> None:
        """See Observer."""
        self._counts.refused(reason)

    def ended(self, attempt: Attempt, end: AttemptEnd, now_s: float) -> None:
        """See Observer."""
        self._counts.ended(attempt, end, now_s)
        if attempt.request.traceparent:
            self._write(attempt, end, now_s)

    def _write(self, attempt: Attempt, end: AttemptEnd, now_s: float) -> None:
        counts, outcome = end.outcome.counts, end.outcome
        facts: Attributes = {
            "gen_ai.request.model": attempt.request.model,
            "gen_ai.usage.input_tokens": counts.prompt_tokens,
            "gen_ai.usage.output_tokens": counts.output_tokens,
            "inferway.attempt": end.attempt_id,
            "inferway.resumed_tokens": counts.resumed_tokens,
            "inferway.discarded_tokens": counts.discarded_tokens,
        }
        span = self._tracer.start("engine attempt", attempt.request.traceparent, facts, attempt.started_s)
        for name, began_s, ended_s in _phases(attempt, now_s):
            span.child(name, {}, began_s).end(ended_s)
        if isinstance(outcome, Failed):
            span.fail("INTERNAL", outcome.reason)
        elif outcome.reason in _ENDS_BY_OTHERS:
            span.fail(_ENDS_BY_OTHERS[outcome.reason], _ENDS_BY_OTHERS[outcome.reason])
        span.end(now_s)


def _phases(attempt: Attempt, ended_s: float) -> Iterator[tuple[str, float, float]]:
    """Name, begin and end of what the attempt came to: queue, prefill, decode; the last one lasts until its end."""
    yield "queue", attempt.started_s, attempt.begun_s or ended_s
    if attempt.begun_s is not None:
        yield "prefill", attempt.begun_s, attempt.first_token_s or ended_s
    if attempt.first_token_s is not None:
        yield "decode", attempt.first_token_s, attempt.last_token_s or ended_s
