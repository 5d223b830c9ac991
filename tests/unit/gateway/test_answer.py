"""An answer hands over text in order, merges what a slow reader has not taken, and tells of its end last."""

import asyncio

import pytest

from services.gateway.answer import Accepted, Answer, Ending, Usage
from services.gateway.request import GenerationRequest, SamplingParams
from services.kit.errors import Internal, Unavailable

ACCEPTED = Accepted("chatcmpl-1", "m", "v", 0, GenerationRequest("m", (), SamplingParams()))


async def all_texts(answer: Answer) -> list[str]:
    async with asyncio.timeout(10):
        return [text async for text in answer.texts()]


async def test_texts_unread_deltas_become_one() -> None:
    answer = Answer()
    for text in ("a", "", "b", "c"):
        answer.push(text)
    answer.close(None)
    assert await all_texts(answer) == ["abc"]


async def test_texts_reader_that_keeps_up_gets_every_delta() -> None:
    answer = Answer()
    texts = answer.texts()
    for expected in ("a", "b"):
        asyncio.get_running_loop().call_soon(answer.push, expected)
        assert await anext(texts) == expected
    asyncio.get_running_loop().call_soon(answer.close, None)
    with pytest.raises(StopAsyncIteration):
        await anext(texts)


async def test_texts_error_comes_after_all_text() -> None:
    answer = Answer()
    answer.push("a")
    answer.close(Unavailable("gone"))
    texts = answer.texts()
    assert await anext(texts) == "a"
    with pytest.raises(Unavailable):
        await anext(texts)


async def test_accepted_raises_the_refusal() -> None:
    answer = Answer()
    asyncio.get_running_loop().call_soon(answer.close, Unavailable("none"))
    with pytest.raises(Unavailable):
        await answer.accepted()


async def test_accepted_of_an_answer_that_ends_without_one_is_a_fault() -> None:
    answer = Answer()
    answer.close(None)
    with pytest.raises(Internal):
        await answer.accepted()


async def test_accepted_is_known_to_late_readers_too() -> None:
    answer = Answer()
    answer.accept(ACCEPTED)
    answer.finish(Ending("stop", Usage(1, 0, 1)))
    answer.close(None)
    assert await answer.accepted() is ACCEPTED
    assert await all_texts(answer) == []
    assert answer.ending.finish_reason == "stop"


async def test_cancel_calls_back_once_and_late_listeners_at_once() -> None:
    answer = Answer()
    calls: list[str] = []
    answer.on_cancel(lambda: calls.append("first"))
    answer.cancel()
    answer.cancel()
    answer.on_cancel(lambda: calls.append("late"))
    assert calls == ["first", "late"]
    answer.on_cancel(None)
    assert answer.cancelled


async def test_take_text_takes_what_is_there_without_waiting() -> None:
    answer = Answer()
    assert answer.take_text() == ""
    answer.push("a")
    answer.push("b")
    assert (answer.take_text(), answer.take_text()) == ("ab", "")
