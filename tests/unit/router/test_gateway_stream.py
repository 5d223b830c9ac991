"""Answers come in order, a full backlog holds the reader back, and a close ends both."""

from __future__ import annotations

import asyncio

import pytest

from services.kit.errors import Unavailable
from services.router.gateway_stream import GatewayStream
from services.router.want import Rejected


def answer(number: int) -> Rejected:
    return Rejected(f"w{number}", "QUEUE_FULL", "full", 1.0)


async def test_stream_answers_in_order_until_the_close() -> None:
    stream = GatewayStream(1, "g", max_backlog=10)
    for number in range(3):
        stream.push(answer(number))
    stream.close()
    stream.push(answer(3))
    assert [given async for given in stream.answers()] == [answer(0), answer(1), answer(2)]


async def test_stream_close_error_comes_after_the_answers() -> None:
    stream = GatewayStream(1, "g", max_backlog=10)
    stream.push(answer(0))
    stream.close(Unavailable("draining"))
    stream.close()
    seen = []
    with pytest.raises(Unavailable):
        async for given in stream.answers():
            seen.append(given)
    assert seen == [answer(0)]


async def test_stream_reader_waits_for_a_push() -> None:
    stream = GatewayStream(1, "g", max_backlog=10)
    answers = stream.answers()
    reading = asyncio.create_task(anext(answers))
    await asyncio.sleep(0)
    assert not reading.done()
    stream.push(answer(0))
    assert await asyncio.wait_for(reading, 10) == answer(0)
    await answers.aclose()


async def test_stream_full_backlog_holds_back_until_it_is_read() -> None:
    stream = GatewayStream(1, "g", max_backlog=2)
    stream.push(answer(0))
    await asyncio.wait_for(stream.wait_for_room(), 10)
    stream.push(answer(1))
    waiting = asyncio.create_task(stream.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    answers = stream.answers()
    await anext(answers)
    await anext(answers)
    await asyncio.wait_for(waiting, 10)
    await answers.aclose()


async def test_stream_close_frees_who_waits_for_room() -> None:
    stream = GatewayStream(1, "g", max_backlog=1)
    stream.push(answer(0))
    waiting = asyncio.create_task(stream.wait_for_room())
    await asyncio.sleep(0)
    stream.close()
    await asyncio.wait_for(waiting, 10)
