"""Whatever engines, router and client do, in any order: one record per request, every grant given back, no text lost or doubled."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.gateway.answer import Answer
from services.gateway.attempt import EndReason
from services.gateway.records import Outcome, SealedRequest
from services.kit.errors import InferwayError, Unavailable
from tests.harness.gateway_bench import PROMPT, Bench
from tests.harness.gateway_fakes import FakeAttempt

# The answer that every replica makes, one token per character.
TEXT = "a\u00e9b\u4f60c\U0001f600defghijklmnop"
ENDS = ("stop", "length", "lost", "retryable", "fatal", "cancelled", "deadline", "hang", "bug")
_DEADLINE_S = 0.03


@dataclass(frozen=True)
class Plan:
    """Per attempt the sizes of its deltas and its end; what the router answers; what the client does, after how many turns of the loop."""

    num_choices: int
    attempts: tuple[tuple[tuple[int, ...], str], ...]
    refusals: tuple[bool, ...]
    client: str
    turns: int
    stream: bool
    max_output_tokens: int
    engine_answers_cancel: bool


PLANS = st.builds(
    Plan,
    num_choices=st.sampled_from([1, 1, 2, 4]),
    attempts=st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=4).map(tuple), st.sampled_from(ENDS)), max_size=8).map(tuple),
    refusals=st.lists(st.booleans(), max_size=4).map(tuple),
    client=st.sampled_from(["stays", "cancels", "drained"]),
    turns=st.integers(0, 8),
    stream=st.booleans(),
    max_output_tokens=st.integers(1, 12),
    engine_answers_cancel=st.booleans(),
)


def play(attempt: FakeAttempt, sizes: tuple[int, ...], end: str) -> None:
    """Goes on with the answer where it was left, as an engine does."""
    asked = attempt.attempt
    if end == "bug":
        raise RuntimeError("a fault that nobody foresaw")
    num_sent = len(TEXT.encode()[: asked.delivered_text_bytes].decode())
    # What was sent has been made before, so the same tokens come again before anything new.
    for size in (num_sent - len(asked.delivered_token_ids), *sizes):
        begin = len(asked.delivered_token_ids) + attempt.num_said
        num_tokens = min(size, asked.max_output_tokens - begin)
        attempt.say(TEXT[max(begin, num_sent) : begin + num_tokens], num_tokens)
    match end:
        case "lost":
            attempt.fail("REPLICA_LOST", lost=True)
        case "retryable":
            attempt.fail("ENGINE_QUEUE_FULL", retryable=True)
        case "fatal":
            attempt.fail("STEP_FAILED")
        case "hang":
            pass
        case reason:
            attempt.finish(EndReason(reason))


async def listen(answer: Answer, heard: dict[int, str]) -> InferwayError | None:
    try:
        await answer.accepted()
        async for pieces in answer.pieces():
            for piece in pieces:
                heard[piece.index] = heard.get(piece.index, "") + piece.text
    except InferwayError as error:
        return error
    return None


async def act(plan: Plan, bench: Bench, answer: Answer) -> None:
    for _ in range(plan.turns):
        await asyncio.sleep(0)
    if plan.client == "cancels":
        answer.cancel()
    elif plan.client == "drained":
        await bench.tasks.drain(0)


async def carry_out(plan: Plan) -> None:
    with ThreadPoolExecutor(1) as threads:
        bench = Bench(threads, deadline_s=_DEADLINE_S, cancel_timeout_s=_DEADLINE_S)
        bench.dispatcher.answers = [Unavailable("none", reason="NO_READY_REPLICA") if refused else "" for refused in plan.refusals]
        bench.replicas.scripts = [lambda attempt, sizes=sizes, end=end: play(attempt, sizes, end) for sizes, end in plan.attempts]
        if not plan.engine_answers_cancel:
            bench.replicas.on_cancel = lambda attempt: None
        answer = bench.start(num_choices=plan.num_choices, stream=plan.stream, max_output_tokens=plan.max_output_tokens)
        heard: dict[int, str] = {}
        error, _ = await asyncio.gather(listen(answer, heard), act(plan, bench, answer))
        await bench.idle()
        assert set(heard) <= set(range(plan.num_choices))
        check(bench, answer, list(heard.values()), error)


def check(bench: Bench, answer: Answer, texts: list[str], error: InferwayError | None) -> None:
    returned = Counter(want_id for want_id, _ in bench.dispatcher.dones)
    assert set(returned) == {attempt.attempt.attempt_id for attempt in bench.replicas.attempts}
    assert set(returned.values()) <= {1}
    assert len(bench.records.records) == (1 if bench.dispatcher.wants else 0)
    assert all(TEXT.startswith(text) for text in texts)
    for record in bench.records.records:
        event(record.outcome.value)
        check_bill(record, sum(map(len, texts)))
        assert record.num_attempts >= len(bench.replicas.attempts)
        if error is None:
            usage = answer.ending.usage
            assert (usage.prompt_tokens, usage.completion_tokens) == (record.prompt_tokens, record.completion_tokens)
            assert record.outcome in (Outcome.FINISHED, Outcome.CANCELLED)
        else:
            assert error.reason == record.error_reason


def check_bill(record: SealedRequest, num_heard: int) -> None:
    billed = (record.prompt_tokens, record.completion_tokens)
    match record.outcome:
        case Outcome.FINISHED | Outcome.INTERRUPTED:
            assert billed == (len(PROMPT), num_heard)
        case Outcome.FAILED:
            assert billed == (0, 0)
        case Outcome.CANCELLED | Outcome.DEADLINE:
            assert billed in ((0, 0), (len(PROMPT), num_heard))


@settings(max_examples=120)
@given(PLANS)
def test_request_any_history_is_settled_once_and_billed_as_heard(plan: Plan) -> None:
    asyncio.run(carry_out(plan))
