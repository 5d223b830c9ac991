"""The smoke test's own judgement: what counts as equal, what as good, and how many requests run at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cli import smoke_report
from cli.smoke import run_all
from cli.smoke_answer import Answer, Failure, Surface, Usage
from cli.smoke_ledger import compare
from inferway.metering.v1 import metering_pb2

ANSWER = Answer(Surface.REST_STREAM, "chatcmpl-1", "m", "stop", Usage(10, 5, 2), ttft_s=0.2)
ROW = metering_pb2.LedgerRequest(
    completion_id="chatcmpl-1",
    model="m",
    finish_reason="stop",
    surface="rest-stream",
    outcome="finished",
    prompt_tokens=10,
    completion_tokens=5,
    cached_prompt_tokens=2,
)


def changed(**fields: object) -> metering_pb2.LedgerRequest:
    row = metering_pb2.LedgerRequest()
    row.CopyFrom(ROW)
    for name, value in fields.items():
        setattr(row, name, value)
    return row


def test_compare_of_equal_figures_finds_nothing() -> None:
    assert compare(ANSWER, [ROW, changed(completion_id="chatcmpl-2")]) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt_tokens", 11),
        ("completion_tokens", 4),
        ("cached_prompt_tokens", 0),
        ("model", "other"),
        ("finish_reason", "length"),
        ("surface", "grpc"),
        ("outcome", "cancelled"),
    ],
)
def test_compare_names_the_field_that_differs(field: str, value: object) -> None:
    (problem,) = compare(ANSWER, [changed(**{field: value})])

    assert "chatcmpl-1" in problem and field in problem and repr(value) in problem


@pytest.mark.parametrize("rows", [[], [ROW, ROW]], ids=["missing", "twice"])
def test_compare_wants_exactly_one_row(rows: list[metering_pb2.LedgerRequest]) -> None:
    (problem,) = compare(ANSWER, rows)

    assert f"{len(rows)} rows" in problem


def test_report_of_a_clean_run_is_good() -> None:
    report = smoke_report.make([ANSWER, replace(ANSWER, ttft_s=0.4), replace(ANSWER, surface=Surface.REST, ttft_s=None)], 3.0, [])

    assert report.is_good
    assert (report.requests, report.ok, report.output_tokens, report.output_tok_s) == (3, 3, 15, 5.0)
    assert report.ttft_ms_p50 == pytest.approx(300)


@pytest.mark.parametrize(
    ("outcomes", "mismatches"),
    [
        ([ANSWER, Failure(Surface.GRPC, "UNAVAILABLE: gone")], []),
        ([ANSWER], ["chatcmpl-1: prompt_tokens told 10, ledger 11"]),
        ([Failure(Surface.REST, "HTTP 503: no replica")], []),
    ],
    ids=["one failed", "ledger differs", "all failed"],
)
def test_report_of_a_run_with_anything_off_is_not_good(outcomes: list[Answer | Failure], mismatches: list[str]) -> None:
    report = smoke_report.make(outcomes, 1.0, mismatches)

    assert not report.is_good
    assert len(report.failed) == sum(isinstance(one, Failure) for one in outcomes)


class GatedClient:
    """Answers only when the test opens the gate; counts how many wait at once."""

    surface = Surface.REST

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.full = asyncio.Event()
        self.num_waiting = 0
        self.most_waiting = 0

    async def ask(self, model: str, question: str, max_tokens: int) -> Answer | Failure:
        self.num_waiting += 1
        self.most_waiting = max(self.most_waiting, self.num_waiting)
        if self.num_waiting == 3:
            self.full.set()
        await self.gate.wait()
        self.num_waiting -= 1
        return ANSWER


async def test_run_all_keeps_exactly_the_asked_concurrency() -> None:
    client = GatedClient()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(run_all([(client, "q")] * 10, "m", concurrency=3, max_tokens=1))
        await client.full.wait()
        client.gate.set()

    assert len(running.result()) == 10
    assert client.most_waiting == 3
