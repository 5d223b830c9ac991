"""Closed-loop load on one server: so many requests of one shape, so many of them in flight, and what came of it.

.venv/bin/python -m bench.load --url http://127.0.0.1:8080 --model m --point 128:0:64@8
"""

import argparse
import asyncio
import json
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.connection import Connection, Target
from bench.prompts import prompts_of
from bench.recording import Answer, Recording, read_answer
from bench.shape import Point

REQUEST_TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a point showed. Gaps (itl) are those between chunks; `tpot` is per token, whatever a chunk carries."""

    num_requests: int
    num_failed: int
    failure: str
    """One of the failures, empty when there is none."""
    wall_s: float
    output_tokens: int
    output_tok_s: float
    ttft_ms_p50: float
    ttft_ms_p95: float
    itl_ms_p50: float
    itl_ms_p95: float
    itl_ms_p99: float
    tpot_ms_p50: float
    tokens_per_chunk: float
    cached_tokens: float
    """Mean per request, as the server counts."""
    client_cpu_share: float
    """Of one core, while the load ran."""


def percentile(values: Sequence[float], percent: float) -> float:
    """The value at the nearest rank; NaN of nothing."""
    if not values:
        return float("nan")
    ranked = sorted(values)
    return ranked[max(0, min(len(ranked) - 1, round(percent / 100 * (len(ranked) - 1))))]


def summarise(answers: Sequence[Answer], wall_s: float, client_cpu_s: float) -> Outcome:
    """Failed requests count as such and add nothing to times or rates."""
    good = [answer for answer in answers if answer.is_ok]
    failures = [answer.failure for answer in answers if not answer.is_ok]
    first = [1000 * answer.arrivals_s[0] for answer in good]
    gaps = [1000 * (b - a) for answer in good for a, b in zip(answer.arrivals_s, answer.arrivals_s[1:], strict=False)]
    per_token = [
        1000 * (answer.arrivals_s[-1] - answer.arrivals_s[0]) / (answer.output_tokens - 1) for answer in good if answer.output_tokens > 1
    ]
    tokens, chunks = sum(answer.output_tokens for answer in good), sum(len(answer.arrivals_s) for answer in good)
    return Outcome(
        num_requests=len(answers),
        num_failed=len(failures),
        failure=failures[0] if failures else "",
        wall_s=round(wall_s, 3),
        output_tokens=tokens,
        output_tok_s=round(tokens / wall_s, 2),
        ttft_ms_p50=round(percentile(first, 50), 2),
        ttft_ms_p95=round(percentile(first, 95), 2),
        itl_ms_p50=round(percentile(gaps, 50), 2),
        itl_ms_p95=round(percentile(gaps, 95), 2),
        itl_ms_p99=round(percentile(gaps, 99), 2),
        tpot_ms_p50=round(percentile(per_token, 50), 2),
        tokens_per_chunk=round(tokens / chunks, 2) if chunks else 0.0,
        cached_tokens=round(statistics.mean(answer.cached_tokens for answer in good), 1) if good else 0.0,
        client_cpu_share=round(client_cpu_s / wall_s, 3),
    )


async def run_point(target: Target, point: Point, first_serial: int, timeout_s: float = REQUEST_TIMEOUT_S) -> Outcome:
    """Load the server with the point's requests; prompts are numbered from `first_serial`. Each request has its own time limit."""
    prompts = prompts_of(point.shape, first_serial, point.num_requests)
    requests = iter([target.request(prompt, point.shape.output) for prompt in prompts])
    recordings: list[Recording] = []

    async def client() -> None:
        async with Connection(target) as connection:
            for request in requests:
                recordings.append(await connection.ask(request, timeout_s))

    cpu, begin = _cpu_s(), time.perf_counter()
    async with asyncio.TaskGroup() as clients:
        for _ in range(min(point.concurrency, point.num_requests)):
            clients.create_task(client())
    wall_s, cpu_s = time.perf_counter() - begin, _cpu_s() - cpu
    return summarise([read_answer(recording) for recording in recordings], wall_s, cpu_s)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True, help="http(s)://LOOPBACK-ADDRESS:PORT")
    parser.add_argument("--model", default="model")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--ca", type=Path, help="certificate authority of an https server")
    parser.add_argument("--point", type=Point.parse, action="append", required=True, help="[text:]PROMPT:SHARED:OUTPUT@CONCURRENCY")
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args(arguments)
    target, serial = Target(given.url, given.model, given.api_key, given.ca), time.time_ns()
    for _ in range(given.repeats):
        for point in given.point:
            outcome = asyncio.run(run_point(target, point, serial))
            serial += point.num_requests
            print(json.dumps({"point": str(point), **asdict(outcome)}), flush=True)


if __name__ == "__main__":
    main()
