"""What a gateway has not read yet is merged per attempt, in order, and bounded."""

import asyncio
from collections.abc import Callable

import pytest

from services.engine.outcome import Counts, Failed, Finished
from services.engine.runner import TokenLogprobs
from services.engine.sequence import EndReason
from services.engine.session import MAX_LOGPROBS_PER_MESSAGE, MAX_TOKENS_PER_MESSAGE, Session

END = Finished(EndReason.LENGTH, Counts(output_tokens=1000))
REFUSAL = Failed("ENGINE_QUEUE_FULL", "full", True)


async def message(session: Session) -> object:
    async with asyncio.timeout(5):
        return await session.next_message()


async def test_next_message_merges_what_a_slow_gateway_has_missed() -> None:
    session = Session("g", max_ended=100)
    for step in range(1, 1001):
        for sequence_id in (1, 2):
            session.add_delta(sequence_id, f"a{sequence_id}", step, [step], "x")
    session.add_end(1, "a1", END)
    merged = await session.next_message()
    assert merged is not None
    assert merged.step == 1000
    first, second = merged.updates
    assert (first.attempt_id, first.token_ids, "".join(first.texts), first.end) == ("a1", list(range(1, 1001)), "x" * 1000, END)
    assert (second.attempt_id, second.end) == ("a2", None)


def position(token_id: int, num_top: int = 0) -> TokenLogprobs:
    return TokenLogprobs(token_id, -0.5, tuple((token, -1.0) for token in range(num_top)))


async def test_next_message_keeps_log_probabilities_beside_their_tokens() -> None:
    session = Session("g", max_ended=100)
    session.add_prompt_logprobs(1, "a", 1, [position(7), position(8)])
    session.add_prompt_logprobs(1, "a", 2, [position(9)])
    for token_id in range(5):
        session.add_delta(1, "a", 3, [token_id], "x", [position(token_id, 2)])
    merged = await session.next_message()
    assert merged is not None
    (update,) = merged.updates
    assert [each.token_id for each in update.prompt_logprobs] == [7, 8, 9]
    assert [each.token_id for each in update.logprobs] == update.token_ids == list(range(5))


async def test_next_message_with_more_log_probabilities_than_fit_comes_in_pieces_that_join_to_the_whole() -> None:
    session = Session("g", max_ended=1)
    num_prompt, num_tokens = 6000, 3000
    session.add_delta(2, "other", 1, [77], "y")
    session.add_prompt_logprobs(1, "a", 1, [position(token_id, 20) for token_id in range(num_prompt)])
    for token_id in range(num_tokens):
        session.add_delta(1, "a", 1, [token_id], "x", [position(token_id, 20)])
    session.add_end(1, "a", END)
    session.add_delta(3, "last", 1, [88], "z")
    prompt: list[int] = []
    tokens: list[int] = []
    sizes = []
    while True:
        told = await session.next_message()
        assert told is not None
        sizes.append(sum(update.num_logprobs for update in told.updates))
        (update,) = [update for update in told.updates if update.attempt_id == "a"]
        assert not update.prompt_logprobs or not tokens
        assert [each.token_id for each in update.logprobs] == update.token_ids
        prompt += [each.token_id for each in update.prompt_logprobs]
        tokens += update.token_ids
        if update.end is not None:
            break
        assert not update.texts
        waiting = asyncio.ensure_future(session.wait_room())
        done, _ = await asyncio.wait({waiting}, timeout=0.01)
        assert not done, "an end that was not sent made room"
        waiting.cancel()
    assert (prompt, tokens, "".join(update.texts)) == (list(range(num_prompt)), list(range(num_tokens)), "x" * num_tokens)
    assert max(sizes) <= MAX_LOGPROBS_PER_MESSAGE
    assert len(sizes) == -(-21 * (num_prompt + num_tokens) // MAX_LOGPROBS_PER_MESSAGE)
    assert [update.attempt_id for update in told.updates] == ["a", "last"]
    await session.wait_room()


async def test_message_to_a_gateway_that_has_not_read_for_long_is_bounded_and_nothing_is_lost() -> None:
    session = Session("g", max_ended=10)
    num_each = MAX_TOKENS_PER_MESSAGE * 2 // 5
    for sequence_id in range(1, 6):
        for _ in range(num_each):
            session.add_delta(sequence_id, f"a{sequence_id}", 1, [sequence_id], "x")
        session.add_end(sequence_id, f"a{sequence_id}", END)
    told = []
    for _ in range(3):
        found = await session.next_message()
        assert found is not None
        assert sum(len(update.token_ids) for update in found.updates) <= MAX_TOKENS_PER_MESSAGE
        told.append([update.attempt_id for update in found.updates])
        assert all(len(update.token_ids) == len("".join(update.texts)) == num_each and update.end is END for update in found.updates)
    assert told == [["a1", "a2"], ["a3", "a4"], ["a5"]]


async def test_next_message_waits_for_something_to_tell() -> None:
    session = Session("g", max_ended=1)
    waiting = asyncio.ensure_future(message(session))
    session.refuse("a", REFUSAL)
    told = await waiting
    assert [update.end for update in told.updates] == [REFUSAL]  # type: ignore[attr-defined]


async def test_refusals_of_one_id_are_told_each_and_touch_no_running_attempt() -> None:
    session = Session("g", max_ended=10)
    session.sequence_ids["a"] = 1
    session.add_delta(1, "a", 1, [5], "")
    session.refuse("a", REFUSAL)
    session.refuse("a", REFUSAL)
    told = await session.next_message()
    assert told is not None
    assert [(update.token_ids, update.end) for update in told.updates] == [([5], None), ([], REFUSAL), ([], REFUSAL)]
    assert session.sequence_ids == {"a": 1}


async def test_wait_room_stops_the_reader_until_ends_are_sent() -> None:
    session = Session("g", max_ended=2)
    await session.wait_room()
    session.refuse("a", REFUSAL)
    session.refuse("b", REFUSAL)
    waiting = asyncio.ensure_future(session.wait_room())
    done, _ = await asyncio.wait({waiting}, timeout=0.01)
    assert not done
    await session.next_message()
    async with asyncio.timeout(5):
        await waiting


async def test_close_lets_the_waiting_reader_and_sender_go() -> None:
    session = Session("g", max_ended=1)
    waiting = asyncio.ensure_future(message(session))
    session.close()
    assert await waiting is None
    session.add_delta(1, "a", 1, [5], "late")
    session.add_end(1, "a", END)
    session.refuse("b", REFUSAL)
    assert await message(session) is None
    await session.wait_room()


async def test_close_with_an_error_tells_what_waits_and_then_raises() -> None:
    session = Session("g", max_ended=10)
    session.refuse("a", REFUSAL)
    session.close(ValueError("bad"))
    assert await message(session) is not None
    with pytest.raises(ValueError, match="bad"):
        await message(session)


async def test_end_input_ends_the_session_after_the_last_running_attempt() -> None:
    session = Session("g", max_ended=10)
    session.sequence_ids["a"] = 1
    session.end_input()
    waiting = asyncio.ensure_future(message(session))
    session.add_end(1, "a", END)
    assert await waiting is not None
    assert await message(session) is None


async def begun(session: Session, *sequence_ids: int) -> None:
    """First tokens of these sequences, told."""
    for sequence_id in sequence_ids:
        session.add_delta(sequence_id, f"a{sequence_id}", 1, [0], "x")
    assert await message(session) is not None


async def is_waiting(reading: asyncio.Task[object]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not reading.done()


async def test_gap_later_tokens_wait_and_come_together() -> None:
    session = Session("g", max_ended=10, min_gap_s=0.02)
    await begun(session, 1)
    for step in range(2, 5):
        session.add_delta(1, "a1", step, [step], "x")
    reading = asyncio.ensure_future(message(session))
    assert await is_waiting(reading)
    merged = await reading
    assert [update.token_ids for update in merged.updates] == [[2, 3, 4]]  # type: ignore[attr-defined]


async def test_gap_that_has_passed_lets_the_next_token_take_along_what_waits() -> None:
    session = Session("g", max_ended=10, min_gap_s=0.05)
    await begun(session, 1)
    session.add_delta(1, "a1", 2, [2], "x")
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0.055, passed.set)
    await passed.wait()
    session.add_delta(1, "a1", 3, [3], "x")
    reading = asyncio.ensure_future(message(session))
    assert not await is_waiting(reading)
    merged = await reading
    assert merged.updates[0].token_ids == [2, 3]  # type: ignore[attr-defined]


async def test_gap_that_has_passed_delays_nothing() -> None:
    session = Session("g", max_ended=10, min_gap_s=0.01)
    await begun(session, 1)
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, passed.set)
    await passed.wait()
    session.add_delta(1, "a1", 2, [2], "x")
    reading = asyncio.ensure_future(message(session))
    assert not await is_waiting(reading)
    await reading


@pytest.mark.parametrize(
    "urgent",
    [
        lambda session: session.add_delta(2, "a2", 2, [9], "first"),
        lambda session: session.add_end(1, "a1", END),
        lambda session: session.refuse("a3", REFUSAL),
        lambda session: session.close(),
    ],
    ids=["first token of another", "end", "refusal", "close"],
)
async def test_gap_does_not_hold_up_what_is_urgent(urgent: Callable[[Session], None]) -> None:
    session = Session("g", max_ended=10, min_gap_s=1000.0)
    await begun(session, 1)
    session.add_delta(1, "a1", 2, [2], "x")
    reading = asyncio.ensure_future(message(session))
    assert await is_waiting(reading)
    urgent(session)
    merged = await reading
    assert merged.updates[0].token_ids == [2]  # type: ignore[attr-defined]


async def test_gap_a_new_attempt_in_place_of_an_ended_one_begins_at_once() -> None:
    session = Session("g", max_ended=10, min_gap_s=1000.0)
    await begun(session, 1)
    session.add_end(1, "a1", END)
    await message(session)
    await begun(session, 2)
