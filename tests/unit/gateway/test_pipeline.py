"""The life of a request that ends well or is refused: what the client learns is what is billed."""

import asyncio
from typing import Any

import pytest

from services.gateway.answer import Usage
from services.gateway.attempt import EndReason
from services.gateway.dispatch import GrantOutcome
from services.gateway.records import Outcome
from services.gateway.request import GenerationRequest
from services.kit.errors import DeadlineExceeded, FieldError, InferwayError, ResourceExhausted, Unavailable
from tests.harness.gateway_bench import Bench, lost, read, refused, says


async def test_request_that_finishes_is_billed_as_told(bench: Bench) -> None:
    bench.replicas.scripts = [says("a", "b", "", then=lambda attempt: attempt.finish(EndReason.LENGTH, output_tokens=3, cached=2))]
    answer = bench.start(max_output_tokens=3)
    assert await read(answer) == "ab"
    assert answer.ending.finish_reasons == ("length",)
    (record,) = bench.records.records
    assert answer.ending.usage == Usage(4, 0, 3) == Usage(record.prompt_tokens, record.cached_prompt_tokens, record.completion_tokens)
    assert (record.outcome, record.finish_reason, record.error_reason) == (Outcome.FINISHED, "length", "")
    assert (record.tenant_id, record.key_id, record.model, record.model_version) == ("acme", "key_1", "m", "v1")
    assert (record.num_attempts, record.surface, record.request_id) == (1, "grpc", "req-1")
    (want,) = bench.dispatcher.wants
    assert (want.prompt_tokens, want.max_output_tokens, want.model_version, want.tenant_id) == (4, 3, "v1", "acme")
    assert bench.dispatcher.first_tokens == [want.want_id]
    assert bench.dispatcher.dones == [(want.want_id, GrantOutcome.FINISHED)]
    assert len(bench.meter.settled_charges) == 1


async def test_request_counts_tokens_as_the_engine_counts_them(bench: Bench) -> None:
    bench.replicas.scripts = [says("abc", "de", then=lambda attempt: attempt.finish(output_tokens=1))]
    answer = bench.start()
    await read(answer)
    assert answer.ending.usage.completion_tokens == bench.records.records[0].completion_tokens == 1


async def test_request_that_ends_without_a_token_is_accepted_and_finished(bench: Bench) -> None:
    bench.replicas.scripts = [says()]
    answer = bench.start()
    assert await read(answer) == ""
    assert (answer.ending.finish_reasons, answer.ending.usage) == (("stop",), Usage(4, 0, 0))
    assert bench.dispatcher.first_tokens == []


async def test_record_is_durable_before_the_client_learns_of_the_end(bench: Bench) -> None:
    bench.records.gate = asyncio.Event()
    bench.replicas.scripts = [says("a")]
    answer = bench.start()
    await answer.accepted()
    reader = asyncio.create_task(read(answer))
    attempt = await bench.attempt()
    assert attempt.num_said == 1
    done, _ = await asyncio.wait({reader}, timeout=0.05)
    assert not done
    assert bench.records.records == []
    bench.records.gate.set()
    assert await reader == "a"
    assert len(bench.records.records) == 1


async def test_record_that_cannot_be_kept_fails_the_request(bench: Bench) -> None:
    bench.records.broken = Unavailable("disk")
    bench.replicas.scripts = [says("a")]
    assert isinstance(await refused(bench.start()), Unavailable)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"credentials": "bad"}, "INVALID_API_KEY"),
        ({"model": "other"}, "MODEL_NOT_FOUND"),
        ({"max_output_tokens": 17}, "CONTEXT_LENGTH_EXCEEDED"),
    ],
)
async def test_refused_request_leaves_no_record_and_asks_nobody(bench: Bench, fields: dict[str, Any], reason: str) -> None:
    assert (await refused(bench.start(**fields))).reason == reason
    await bench.idle()
    assert (bench.records.records, bench.dispatcher.wants, bench.meter.refusals) == ([], [], [reason])


async def test_refusal_of_the_body_comes_after_that_of_the_key(bench: Bench) -> None:
    def unreadable() -> GenerationRequest:
        raise FieldError("messages", "no")

    assert (await refused(bench.start(credentials="bad", read=unreadable))).reason == "INVALID_API_KEY"
    assert (await refused(bench.start(read=unreadable))).reason == "INVALID_FIELD"


async def test_context_exactly_full_is_served_and_one_more_is_refused_with_the_counts(bench: Bench) -> None:
    bench.replicas.scripts = [says("a")]
    await read(bench.start(max_output_tokens=16))
    error = await refused(bench.start(max_output_tokens=17))
    assert (error.metadata["prompt_tokens"], error.metadata["max_context_tokens"]) == ("4", "20")
    assert "20" in error.message
    assert "4" in error.message


async def test_no_limit_means_up_to_the_end_of_the_context(bench: Bench) -> None:
    bench.replicas.scripts = [says("a")]
    await read(bench.start())
    assert bench.replicas.attempts[0].attempt.max_output_tokens == 16


@pytest.mark.parametrize(("num_tokens", "reason"), [(20, "CONTEXT_LENGTH_EXCEEDED"), (21, "CONTEXT_LENGTH_EXCEEDED"), (0, "INVALID_FIELD")])
async def test_prompt_that_leaves_no_room_or_is_empty_is_refused(bench: Bench, num_tokens: int, reason: str) -> None:
    bench.models.template.prompt = (1,) * num_tokens
    error = await refused(bench.start())
    assert (error.reason, error.metadata["param"]) == (reason, "messages")


async def test_full_outbox_takes_no_paid_work(bench: Bench) -> None:
    bench.records.full = ResourceExhausted("full", reason="OUTBOX_FULL")
    assert (await refused(bench.start())).reason == "OUTBOX_FULL"
    assert bench.dispatcher.wants == []


async def test_more_requests_than_the_bound_are_refused_until_one_ends(bench: Bench) -> None:
    bench.max_num_requests = 1
    first = bench.start()
    attempt = await bench.attempt()
    assert (await refused(bench.start())).reason == "QUEUE_FULL"
    attempt.finish()
    await read(first)
    bench.replicas.scripts = [says("a")]
    assert await read(bench.start()) == "a"


@pytest.mark.parametrize(
    "error",
    [
        ResourceExhausted("full", reason="QUEUE_FULL", retry_after_s=2.0),
        Unavailable("none", reason="NO_READY_REPLICA", retry_after_s=1.0),
        DeadlineExceeded("late", reason="QUEUE_TIMEOUT"),
    ],
)
async def test_router_that_says_no_is_passed_on_and_costs_nothing(bench: Bench, error: InferwayError) -> None:
    bench.dispatcher.answers = [error]
    assert await refused(bench.start()) is error
    (record,) = bench.records.records
    assert record.outcome in (Outcome.FAILED, Outcome.DEADLINE)
    assert (record.prompt_tokens, record.completion_tokens, record.error_reason) == (0, 0, error.reason)


async def test_ttft_is_measured_once_from_the_start(bench: Bench) -> None:
    answer = bench.start()
    first = await bench.attempt()
    bench.clock.advance(0.25)
    first.say("a")
    await answer.accepted()
    bench.clock.advance(1.0)
    lost(first)
    second = await bench.attempt()
    second.say("b")
    second.finish()
    await read(answer)
    assert bench.records.records[0].ttft_ms == 250
