"""Numbers made of answers, and the client beside a real socket."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bench.connection import Target
from bench.load import percentile, run_point, summarise
from bench.recording import Answer
from bench.shape import Point


@pytest.mark.parametrize(("percent", "wanted"), [(0, 1.0), (50, 3.0), (95, 5.0), (100, 5.0)])
def test_percentile_is_a_value_that_occurred(percent: float, wanted: float) -> None:
    assert percentile([5.0, 1.0, 3.0, 2.0, 4.0], percent) == wanted


def test_percentile_of_nothing_is_no_number() -> None:
    assert math.isnan(percentile([], 50))


def test_times_are_those_of_good_answers_and_failures_are_counted() -> None:
    good = [Answer((0.1, 0.2, 0.4), 6, 8), Answer((0.3, 0.4), 2, 0)]
    found = summarise([*good, Answer(failure="status 503")], wall_s=2.0, client_cpu_s=0.1)
    assert (found.num_requests, found.num_failed, found.failure) == (3, 1, "status 503")
    assert found.output_tok_s == 4.0
    assert (found.ttft_ms_p50, found.ttft_ms_p95) == (100.0, 300.0)
    assert (found.itl_ms_p50, found.itl_ms_p95) == (100.0, 200.0)
    assert found.tpot_ms_p50 == 60.0
    assert (found.tokens_per_chunk, found.cached_tokens, found.client_cpu_share) == (1.6, 4.0, 0.05)


def test_nothing_answered_is_a_rate_of_zero() -> None:
    found = summarise([Answer(failure="x")], wall_s=1.0, client_cpu_s=0.0)
    assert (found.output_tok_s, found.num_failed) == (0.0, 1)
    assert math.isnan(found.ttft_ms_p50)


@pytest.mark.parametrize("url", ["http://10.0.0.1:80", "ftp://127.0.0.1:1", "http://example.org", "127.0.0.1:80"])
def test_only_this_machine_is_a_target(url: str) -> None:
    with pytest.raises(ValueError):
        Target(url, "m")


_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"


def chunk(message: object) -> bytes:
    data = b"data: " + (message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def server(answers_per_connection: int, heard: Callable[[dict[str, object]], None]) -> AsyncIterator[str]:
    """Streams two tokens per request and hangs up after so many answers, without telling before."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(answers_per_connection):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            heard(json.loads(await reader.readexactly(length)))
            writer.write(_HEAD)
            await writer.drain()
            writer.write(chunk({"choices": [{"text": "a", "finish_reason": None}]}))
            last = {"choices": [{"text": "b", "finish_reason": "length"}], "usage": {"completion_tokens": 2}}
            writer.write(chunk(last) + chunk(b"[DONE]") + b"0\r\n\r\n")
            await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("answers_per_connection", [1, 1000])
async def test_load_asks_for_every_prompt_once_on_kept_or_closed_connections(answers_per_connection: int) -> None:
    heard: list[dict[str, object]] = []
    async with server(answers_per_connection, heard.append) as url:
        found = await run_point(Target(url, "m"), Point.parse("8:0:2@3"), first_serial=7, timeout_s=10)
    assert (found.num_requests, found.num_failed, found.failure) == (6, 0, "")
    assert len({tuple(body["prompt"]) for body in heard}) == 6  # type: ignore[arg-type]
    assert {body["max_tokens"] for body in heard} == {2}


async def test_server_that_never_answers_fails_each_request_in_time() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        target = Target(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", "m")
        found = await run_point(target, Point.parse("8:0:2@1"), first_serial=1, timeout_s=0.05)
    assert found.num_failed == found.num_requests
    assert "0.05 s" in found.failure


async def test_nobody_listening_is_a_failure_and_no_exception() -> None:
    found = await run_point(Target("http://127.0.0.1:9", "m"), Point.parse("8:0:2@1"), first_serial=1)
    assert found.num_failed == found.num_requests
