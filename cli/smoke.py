"""`inferway smoke`: real clients, mixed, at the same time, through Envoy; then every answer against its ledger row."""

import asyncio
import json
import os
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict
from itertools import cycle, islice
from typing import Annotated

import typer

from cli import smoke_ledger, smoke_report
from cli.clients import ledger
from cli.console import console
from cli.errors import CommandError
from cli.settings import current, demo_key
from cli.smoke_answer import Answer, Failure
from cli.smoke_clients import DEADLINE_S, Client, GrpcClient, RestClient
from cli.smoke_report import SmokeReport
from deploy.local.settings import Settings
from services.kit import channel

_MODEL = "smollm2-135m-instruct"
_QUESTIONS = (
    "Name three colours of the rainbow.",
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Count from one to ten.",
    "Explain in two sentences why the sky is blue.",
    "Grüße auf Deutsch, bitte. 你好吗?",
    "Give me a short list of fruits.",
)


def smoke(
    requests: Annotated[int, typer.Option("--requests", "-n", min=1, max=1000, help="How many requests.")] = 50,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="How many at the same time.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one answer.")] = 32,
    model: Annotated[str, typer.Option(help="Model to ask.")] = _MODEL,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Send mixed requests through the edge and check the bill. Exit status 1 when anything is off."""
    settings = current()
    report = asyncio.run(_smoke(settings, demo_key(settings, os.environ), model, requests, concurrency, max_tokens))
    if as_json:
        console().print(json.dumps(asdict(report)), highlight=False, markup=False, soft_wrap=True)
    else:
        _show(report)
    if not report.is_good:
        raise typer.Exit(1)


async def _smoke(settings: Settings, key: str, model: str, requests: int, concurrency: int, max_tokens: int) -> SmokeReport:
    if not key:
        raise CommandError("There is no API key for this mesh.", "Run `inferway up` first, or set INFERWAY_API_KEY.")
    from openai import AsyncOpenAI

    async with AsyncExitStack() as stack:
        rest = await stack.enter_async_context(
            AsyncOpenAI(base_url=f"{settings.base_url}/v1", api_key=key, timeout=DEADLINE_S, max_retries=0)
        )
        edge = await stack.enter_async_context(channel.connect(f"127.0.0.1:{settings.ports.edge_http}"))
        clients = (RestClient(rest, stream=True), RestClient(rest, stream=False), GrpcClient(edge, key))
        begun = time.monotonic()
        outcomes = await run_all(islice(zip(cycle(clients), cycle(_QUESTIONS), strict=False), requests), model, concurrency, max_tokens)
        wall_s = time.monotonic() - begun
    answers = [one for one in outcomes if isinstance(one, Answer)]
    async with ledger(settings) as client:
        return smoke_report.make(outcomes, wall_s, await smoke_ledger.mismatches(client, answers))


async def run_all(work: Iterable[tuple[Client, str]], model: str, concurrency: int, max_tokens: int) -> list[Answer | Failure]:
    """Ask every question, at most `concurrency` at the same time; outcomes in order of completion."""
    left, outcomes = iter(work), list[Answer | Failure]()

    async def worker() -> None:
        for client, question in left:
            outcomes.append(await client.ask(model, question, max_tokens))

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
    return outcomes


def _show(report: SmokeReport) -> None:
    out = console()
    mark = "[green]✓[/]" if report.is_good else "[bold red]✗[/]"
    out.print(f"{mark} {report.ok} of {report.requests} answered in {report.wall_s} s, {report.output_tok_s} output tok/s", highlight=False)
    out.print(f"  TTFT p50 {report.ttft_ms_p50} ms, p95 {report.ttft_ms_p95} ms", highlight=False)
    out.print(f"  ledger {'equals' if report.ledger_equal else 'differs from'} what clients were told", highlight=False)
    for reason in (*report.failed, *report.ledger_mismatches):
        out.print(f"  - {reason}", markup=False, highlight=False, soft_wrap=True)
