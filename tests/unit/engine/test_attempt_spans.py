"""What the trace of an attempt says of every way in which it can end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.engine.attempt import Attempt
from services.engine.attempt_spans import AttemptSpans
from services.engine.attempts import AttemptRequest
from services.engine.metrics import EngineMetrics
from services.engine.outcome import Counts, Failed, Finished
from services.engine.sequence import EndReason
from services.engine.session import Session
from services.engine.token_bytes import TokenBytes
from services.kit.clock import SystemClock
from services.kit.tracing import Attributes, Span

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class NotedSpan(Span):
    """A span that keeps what it is told."""

    name: str
    began_s: float | None
    facts: dict[str, Any]
    failure: tuple[str, str] | None = None
    ended_s: float | None = None
    parts: list[NotedSpan] = field(default_factory=list)

    def fail(self, code: str, error_type: str) -> None:
        self.failure = (code, error_type)

    def child(self, name: str, attributes: Attributes, began_s: float | None = None) -> Span:
        self.parts.append(NotedSpan(name, began_s, dict(attributes)))
        return self.parts[-1]

    def end(self, ended_s: float | None = None) -> None:
        self.ended_s = ended_s


class Notes:
    """A tracer that keeps its spans."""

    def __init__(self) -> None:
        self.spans: list[NotedSpan] = []

    def start(self, name: str, traceparent: str, attributes: Attributes, began_s: float | None = None) -> Span:
        assert traceparent == CONTEXT
        self.spans.append(NotedSpan(name, began_s, dict(attributes)))
        return self.spans[-1]

    def close(self) -> None: ...


def trace_of(outcome: Finished | Failed, *, traceparent: str = CONTEXT, **times: float) -> list[NotedSpan]:
    """An attempt that was accepted at 10 s and ended at 20 s, with the other times as given."""
    request = AttemptRequest("a", "m", [1, 2], 10, traceparent=traceparent)
    attempt = Attempt(1, request, Session("g", 1), TokenBytes([b"x"]), SystemClock())
    for name, time_s in {"started_s": 10.0, **times}.items():
        setattr(attempt, name, time_s)
    notes, registry = Notes(), CollectorRegistry()
    AttemptSpans(notes, EngineMetrics(registry, "m")).ended(attempt, attempt.end(outcome), 20.0)
    assert registry.get_sample_value("inferway_engine_request_duration_seconds_count", {"model_name": "m"}) == 1
    return notes.spans


def phases(span: NotedSpan) -> list[tuple[str, float | None, float | None]]:
    return [(part.name, part.began_s, part.ended_s) for part in span.parts]


def test_trace_of_a_whole_attempt_has_its_phases_and_counts() -> None:
    counts = Counts(prompt_tokens=2, output_tokens=5, resumed_tokens=3, discarded_tokens=1)
    (span,) = trace_of(Finished(EndReason.STOP, counts), begun_s=11.0, first_token_s=13.0, last_token_s=19.0)
    assert (span.name, span.began_s, span.ended_s, span.failure) == ("engine attempt", 10.0, 20.0, None)
    assert phases(span) == [("queue", 10.0, 11.0), ("prefill", 11.0, 13.0), ("decode", 13.0, 19.0)]
    assert span.facts == {
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 5,
        "inferway.attempt": "a",
        "inferway.resumed_tokens": 3,
        "inferway.discarded_tokens": 1,
    }


def test_trace_of_an_attempt_that_never_left_the_queue_has_only_that() -> None:
    (span,) = trace_of(Finished(EndReason.DEADLINE, Counts()))
    assert phases(span) == [("queue", 10.0, 20.0)]


def test_trace_of_an_attempt_without_a_token_ends_in_prefill() -> None:
    (span,) = trace_of(Finished(EndReason.CANCELLED, Counts()), begun_s=12.0)
    assert phases(span) == [("queue", 10.0, 12.0), ("prefill", 12.0, 20.0)]


@pytest.mark.parametrize(
    ("outcome", "failure"),
    [
        (Finished(EndReason.LENGTH, Counts()), None),
        (Finished(EndReason.CANCELLED, Counts()), ("CANCELLED", "CANCELLED")),
        (Finished(EndReason.DEADLINE, Counts()), ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")),
        (Failed("STEP_FAILED", "a sentence", can_retry=True), ("INTERNAL", "STEP_FAILED")),
    ],
)
def test_trace_says_how_the_attempt_ended(outcome: Finished | Failed, failure: tuple[str, str] | None) -> None:
    assert trace_of(outcome)[0].failure == failure


def test_attempt_that_its_gateway_does_not_trace_has_no_span() -> None:
    assert trace_of(Finished(EndReason.STOP, Counts()), traceparent="") == []
