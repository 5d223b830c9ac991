"""Several choices are one request: one charge, one header, one bill; each has attempts of its own, and they stand and fall together."""

from typing import Any

import pytest

from services.gateway.answer import Answer, Usage
from services.gateway.attempt import EndReason
from services.gateway.dispatch import GrantOutcome
from services.gateway.records import Outcome
from services.gateway.request import MAX_LOGPROBS, FieldNames, SamplingParams
from services.kit.errors import Unavailable
from tests.harness.gateway_bench import PROMPT, Bench, lost, read, refused, says
from tests.harness.gateway_fakes import FakeAttempt

COUNT = 3


async def texts(answer: Answer) -> list[str]:
    await answer.accepted()
    return [piece.text for piece in await answer.whole()]


async def started(bench: Bench, count: int = COUNT) -> list[FakeAttempt]:
    return [await bench.attempt() for _ in range(count)]


async def test_choices_are_asked_for_one_by_one_and_billed_as_one_request(bench: Bench) -> None:
    bench.replicas.scripts = [says("a"), says("b", "c"), says("d", then=lambda attempt: attempt.finish(EndReason.LENGTH))]
    answer = bench.start(num_choices=COUNT, max_output_tokens=9)
    assert await texts(answer) == ["a", "bc", "d"]
    assert (answer.ending.finish_reasons, answer.ending.usage) == (("stop", "stop", "length"), Usage(len(PROMPT), 0, 4))
    (record,) = bench.records.records
    assert (record.prompt_tokens, record.completion_tokens, record.num_attempts) == (len(PROMPT), 4, COUNT)
    assert (record.outcome, record.finish_reason) == (Outcome.FINISHED, "stop")
    attempts = [fake.attempt for fake in bench.replicas.attempts]
    assert [attempt.choice for attempt in attempts] == [0, 1, 2]
    assert {attempt.sampling.seed for attempt in attempts} == {1}
    assert {attempt.charge_id for attempt in attempts} == {record.charge_id}
    ids = [want.want_id for want in bench.dispatcher.wants]
    assert ids == [attempt.attempt_id for attempt in attempts]
    assert len(set(ids)) == COUNT
    assert sorted(bench.dispatcher.dones) == sorted((want_id, GrantOutcome.FINISHED) for want_id in ids)
    assert {(want.prompt_tokens, want.max_output_tokens) for want in bench.dispatcher.wants} == {(len(PROMPT), 9)}


async def test_first_token_of_any_choice_accepts_the_request(bench: Bench) -> None:
    answer = bench.start(num_choices=COUNT)
    attempts = await started(bench)
    bench.clock.advance(0.25)
    attempts[2].say("c")
    await answer.accepted()
    bench.clock.advance(1)
    for attempt in attempts[:2]:
        attempt.finish()
    attempts[2].finish()
    assert await texts(answer) == ["", "", "c"]
    assert bench.records.records[0].ttft_ms == 250


async def test_choice_whose_replica_is_lost_is_resumed_alone(bench: Bench) -> None:
    bench.replicas.scripts = [says("a", "b", then=lost), says("x"), says("y"), says("c")]
    answer = bench.start(num_choices=COUNT)
    assert await texts(answer) == ["abc", "x", "y"]
    resumed = bench.replicas.attempts[3].attempt
    assert (resumed.choice, resumed.delivered_token_ids, resumed.delivered_text_bytes) == (0, (100, 101), 2)
    assert [want.excluded_replica_ids for want in bench.dispatcher.wants] == [(), (), (), ("r1",)]
    (record,) = bench.records.records
    assert (record.completion_tokens, record.num_attempts) == (5, 4)


async def test_choice_that_fails_ends_the_request_and_stops_the_others(bench: Bench) -> None:
    bench.replicas.on_cancel = lambda attempt: attempt.finish(EndReason.CANCELLED)
    answer = bench.start(num_choices=COUNT)
    attempts = await started(bench)
    attempts[0].say("a")
    attempts[1].finish()
    await answer.accepted()
    attempts[2].fail("STEP_FAILED")
    assert (await refused(answer)).reason == "STEP_FAILED"
    assert attempts[0].cancelled.is_set()
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.INTERRUPTED, len(PROMPT), 1)
    outcomes = sorted(outcome.value for _, outcome in bench.dispatcher.dones)
    assert outcomes == ["cancelled", "failed", "finished"]


async def test_choice_that_nobody_takes_fails_the_request_and_costs_nothing_without_output(bench: Bench) -> None:
    bench.dispatcher.answers = ["", Unavailable("none", reason="NO_READY_REPLICA"), "wait"]
    assert (await refused(bench.start(num_choices=COUNT))).reason == "NO_READY_REPLICA"
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.FAILED, 0, 0)


async def test_cancel_stops_every_choice_and_bills_what_was_made(bench: Bench) -> None:
    bench.replicas.on_cancel = lambda attempt: attempt.finish(EndReason.CANCELLED, output_tokens=attempt.num_said + 1)
    answer = bench.start(num_choices=COUNT)
    attempts = await started(bench)
    attempts[0].say("a")
    attempts[0].finish()
    attempts[1].say("b", num_tokens=2)
    await answer.accepted()
    answer.cancel()
    assert await read(answer) == "ab"
    assert [attempt.cancelled.is_set() for attempt in attempts] == [False, True, True]
    assert (answer.ending.finish_reasons, answer.ending.usage) == (("stop", "cancelled", "cancelled"), Usage(len(PROMPT), 0, 5))
    (record,) = bench.records.records
    assert (record.outcome, record.finish_reason, record.completion_tokens) == (Outcome.CANCELLED, "", 5)


async def test_deadline_of_one_choice_is_that_of_the_request(bench: Bench) -> None:
    answer = bench.start(num_choices=COUNT)
    attempts = await started(bench)
    attempts[0].say("a")
    attempts[1].finish(EndReason.DEADLINE)
    assert (await refused(answer)).code == "DEADLINE_EXCEEDED"
    assert (attempts[0].cancelled.is_set(), attempts[2].cancelled.is_set()) == (True, True)
    assert bench.records.records[0].outcome is Outcome.DEADLINE


@pytest.mark.parametrize(("cached", "expected"), [((2, 4, 4), 2), ((0, 4, 4), 0), ((9, 0, 0), len(PROMPT))])
async def test_cached_prompt_tokens_are_those_of_the_first_choice(bench: Bench, cached: tuple[int, ...], expected: int) -> None:
    """The others find in the cache what the first has just computed. Never more than the prompt has."""
    answer = bench.start(num_choices=COUNT)
    for attempt, count in zip(await started(bench), cached, strict=True):
        attempt.say("a", cached=count)
        attempt.finish(cached=count)
    await read(answer)
    assert answer.ending.usage == Usage(len(PROMPT), expected, COUNT)
    assert bench.records.records[0].cached_prompt_tokens == expected


async def test_engine_gets_every_wish(bench: Bench) -> None:
    bench.replicas.scripts = [says("a")]
    wishes: dict[str, Any] = {"stop_token_ids": (3,), "min_output_tokens": 2, "include_stop": True, "ignore_eos": True, "num_logprobs": 4}
    await read(bench.start(**wishes, num_prompt_logprobs=1))
    attempt = bench.replicas.attempts[0].attempt
    assert {name: getattr(attempt, name) for name in wishes} == wishes
    assert attempt.num_prompt_logprobs == 1


async def test_prompt_of_token_ids_is_taken_as_it_is(bench: Bench) -> None:
    bench.replicas.scripts = [says("a")]
    answer = bench.start(messages=(), prompt=(9, 999))
    assert (await answer.accepted()).completion_id.startswith("cmpl-")
    await read(answer)
    assert bench.replicas.attempts[0].attempt.prompt_token_ids == (9, 999)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": (), "prompt": (9, 1000), "names": FieldNames(input="its prompt")}, "its prompt"),
        ({"sampling": SamplingParams(logit_bias=((1000, 1.0),)), "names": FieldNames(logit_bias="its bias")}, "its bias"),
        ({"stop_token_ids": (1000,)}, "stop_token_ids"),
    ],
)
async def test_token_outside_the_vocabulary_is_refused_before_anybody_is_asked(bench: Bench, fields: dict[str, Any], param: str) -> None:
    error = await refused(bench.start(**fields))
    assert (error.code, error.reason, error.metadata["param"]) == ("INVALID_ARGUMENT", "TOKEN_OUT_OF_RANGE", param)
    assert (bench.dispatcher.wants, bench.records.records) == ([], [])


async def test_least_tokens_that_do_not_fit_are_refused(bench: Bench) -> None:
    error = await refused(bench.start(min_output_tokens=17))
    assert (error.reason, error.metadata["param"]) == ("CONTEXT_LENGTH_EXCEEDED", "min_tokens")
    bench.replicas.scripts = [says("a")]
    await read(bench.start(min_output_tokens=16))


async def test_more_logprobs_than_an_answer_may_hold_are_refused_and_as_many_are_not(bench: Bench) -> None:
    bench.models.max_context_tokens = 2**17
    bench.replicas.scripts = [says("a"), says("a")]
    fields: dict[str, Any] = {"num_logprobs": 1, "num_prompt_logprobs": 1, "num_choices": 2}
    most = MAX_LOGPROBS // 4 - len(PROMPT)
    await read(bench.start(**fields, max_output_tokens=most))
    error = await refused(bench.start(**fields, max_output_tokens=most + 1, names=FieldNames(logprobs="its name")))
    assert (error.reason, error.metadata["param"]) == ("INVALID_FIELD", "its name")


async def test_refusal_of_the_engine_is_the_clients_400_and_costs_nothing(bench: Bench) -> None:
    bench.replicas.scripts = [lambda attempt: attempt.fail("INVALID_FIELD")]
    error = await refused(bench.start())
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens, record.num_attempts) == (Outcome.FAILED, 0, 0, 1)
