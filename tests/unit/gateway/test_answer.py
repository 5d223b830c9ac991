"""An answer hands over what is new in order, merges what a slow reader has not taken, and tells of its end last."""

import asyncio

import pytest

from services.gateway.answer import MAX_POSITIONS_AT_ONCE, Accepted, Answer, Ending, Piece, Usage
from services.gateway.logprobs import TokenLogprob, TokenLogprobs
from services.gateway.request import GenerationRequest, SamplingParams
from services.kit.errors import Internal, Unavailable

ACCEPTED = Accepted("chatcmpl-1", "m", "v", 0, GenerationRequest("m", (), SamplingParams()))


def piece(text: str, index: int = 0, *logprobs: float) -> Piece:
    tokens = (TokenLogprob(7, b"t", logprob) for logprob in logprobs)
    return Piece(index, text, tuple(TokenLogprobs(token, ()) for token in tokens))


async def all_pieces(answer: Answer) -> list[list[Piece]]:
    async with asyncio.timeout(10):
        return [pieces async for pieces in answer.pieces()]


async def test_pieces_that_nobody_read_become_one_per_choice() -> None:
    answer = Answer()
    for new in (piece("a", 1), piece(""), piece("b", 0, -1.0), piece("c", 1), piece("", 0, -2.0)):
        answer.push(new)
    answer.close(None)
    assert await all_pieces(answer) == [[piece("b", 0, -1.0, -2.0), piece("ac", 1)]]


async def test_pieces_reader_that_keeps_up_gets_every_one() -> None:
    answer = Answer()
    pieces = answer.pieces()
    for expected in (piece("a"), piece("b", 3)):
        asyncio.get_running_loop().call_soon(answer.push, expected)
        assert await anext(pieces) == [expected]
    asyncio.get_running_loop().call_soon(answer.close, None)
    with pytest.raises(StopAsyncIteration):
        await anext(pieces)


async def test_pieces_error_comes_after_all_text() -> None:
    answer = Answer()
    answer.push(piece("a"))
    answer.close(Unavailable("gone"))
    pieces = answer.pieces()
    assert await anext(pieces) == [piece("a")]
    with pytest.raises(Unavailable):
        await anext(pieces)


async def test_whole_waits_for_the_end_and_has_every_choice_even_a_silent_one() -> None:
    answer = Answer()
    reading = asyncio.create_task(answer.whole())
    for new in (piece("a", 2), piece("b", 0), piece("c", 2)):
        await asyncio.sleep(0)
        answer.push(new)
    answer.finish(Ending(("stop",) * 3, Usage(1, 0, 3)))
    answer.close(None)
    async with asyncio.timeout(10):
        assert await reading == (piece("b"), piece("", 1), piece("ac", 2))


async def test_whole_raises_the_error_instead_of_a_part() -> None:
    answer = Answer()
    answer.push(piece("a"))
    answer.close(Unavailable("gone"))
    with pytest.raises(Unavailable):
        await answer.whole()


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
    answer.finish(Ending(("stop",), Usage(1, 0, 1)))
    answer.close(None)
    assert await answer.accepted() is ACCEPTED
    assert await all_pieces(answer) == []
    assert answer.ending.finish_reasons == ("stop",)


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


async def test_take_takes_what_is_there_without_waiting() -> None:
    answer = Answer()
    assert answer.take() == []
    answer.push(piece("a"))
    answer.push(piece("b"))
    assert (answer.take(), answer.take()) == ([piece("ab")], [])


async def test_take_of_many_logprobs_leaves_some_for_the_next_time_and_loses_none() -> None:
    answer, part = Answer(), MAX_POSITIONS_AT_ONCE // 2
    pushed = {index: [piece(f"{number}", index, *[-float(number)] * part) for number in range(5)] for index in (1, 0)}
    for new in (*pushed[1], *pushed[0]):
        answer.push(new)
    answer.push(piece("end", 0))
    answer.close(None)
    taken = await all_pieces(answer)
    assert max(sum(one.num_positions for one in pieces) for pieces in taken) <= MAX_POSITIONS_AT_ONCE
    for index, pieces in pushed.items():
        told = [one for round in taken for one in round if one.index == index]
        assert "".join(one.text for one in told) == "01234" + ("end" if index == 0 else "")
        assert [entry for one in told for entry in one.logprobs] == [entry for one in pieces for entry in one.logprobs]


async def test_take_of_one_piece_with_more_logprobs_than_that_takes_it_whole() -> None:
    answer, large = Answer(), piece("a", 0, *[-1.0] * (MAX_POSITIONS_AT_ONCE + 1))
    answer.push(large)
    answer.push(piece("b"))
    assert (answer.take(), answer.take(), answer.take()) == ([large], [piece("b")], [])


async def test_whole_has_all_logprobs_however_many() -> None:
    answer, part = Answer(), MAX_POSITIONS_AT_ONCE - 1
    for text in "abc":
        answer.push(piece(text, 0, *[-1.0] * part))
    answer.finish(Ending(("stop",), Usage(1, 0, 3)))
    answer.close(None)
    (whole,) = await answer.whole()
    assert (whole.text, len(whole.logprobs)) == ("abc", 3 * part)
