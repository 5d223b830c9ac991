"""The life of a request: whatever happens to it, it is settled exactly once, and what the client learns is what is billed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.gateway.admission import Admission
from services.gateway.answer import Answer, Usage
from services.gateway.attempt import EndReason
from services.gateway.call import Call
from services.gateway.dispatch import GrantOutcome
from services.gateway.generation import Generation, GenerationLimits
from services.gateway.keys import Identity
from services.gateway.models import ServedModel
from services.gateway.pipeline import Pipeline
from services.gateway.records import Outcome
from services.gateway.request import GenerationRequest, Message, SamplingParams
from services.gateway.request_tasks import RequestTasks
from services.kit.errors import (
    DeadlineExceeded,
    FieldError,
    InferwayError,
    Internal,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from tests.harness.gateway_fakes import CountingMeter, FakeAttempt, FakeClock, FakeDispatcher, FakeReplicas, MemoryRecords

IDENTITY = Identity("acme", "key_1", frozenset(), False, b"salt")
PROMPT = (5, 6, 7, 8)
WAIT_S = 10.0


class FixedKeys:
    """Knows the one key "good"."""

    def authenticate_tenant(self, authorization: Any) -> Identity:
        if tuple(authorization) != ("good",):
            raise Unauthenticated("who?")
        return IDENTITY


class FixedTemplate:
    """Every conversation is the same prompt."""

    prompt = PROMPT

    def encode(self, messages: Any) -> list[int]:
        return list(self.prompt)


class FixedModels:
    """Serves the model "m" with room for 20 tokens."""

    def __init__(self) -> None:
        self.template: Any = FixedTemplate()

    def resolve(self, name: str, identity: Identity) -> ServedModel:
        if name != "m":
            raise NotFound("no such model", reason="MODEL_NOT_FOUND")
        return ServedModel("m", "v1", 20, 0, self.template)


@dataclass
class Bench:
    """A pipeline on fakes, and the ways to look at what it did."""

    threads: ThreadPoolExecutor
    max_num_requests: int = 8
    deadline_s: float = WAIT_S
    cancel_timeout_s: float = WAIT_S
    clock: FakeClock = field(default_factory=FakeClock)
    dispatcher: FakeDispatcher = field(default_factory=FakeDispatcher)
    replicas: FakeReplicas = field(default_factory=FakeReplicas)
    records: MemoryRecords = field(default_factory=MemoryRecords)
    meter: CountingMeter = field(default_factory=CountingMeter)
    tasks: RequestTasks = field(default_factory=RequestTasks)
    models: FixedModels = field(default_factory=FixedModels)

    def start(self, *, credentials: str = "good", timeout_s: float | None = None, read: Any = None, **fields: Any) -> Answer:
        request = GenerationRequest(
            **{"model": "m", "messages": (Message("user", "x"),), "sampling": SamplingParams(seed=1), "stream": True, **fields}
        )
        return self.pipeline.start(Call("req-1", (credentials,), "grpc", read or (lambda: request), timeout_s))

    @property
    def pipeline(self) -> Pipeline:
        if not hasattr(self, "admission"):
            self.admission = Admission(self.records, self.max_num_requests)
        limits = GenerationLimits(max_num_attempts=3, cancel_timeout_s=self.cancel_timeout_s)
        return Pipeline(
            keys=FixedKeys(),  # type: ignore[arg-type]
            models=self.models,
            admission=self.admission,
            generation=Generation(self.dispatcher, self.replicas, self.clock, limits),
            records=self.records,
            meter=self.meter,
            tokenizer_threads=self.threads,
            tasks=self.tasks,
            clock=self.clock,
            request_deadline_s=self.deadline_s,
        )

    async def attempt(self) -> FakeAttempt:
        async with asyncio.timeout(WAIT_S):
            return await self.replicas.started.get()

    async def idle(self) -> None:
        """Waits until no request is in work, and checks that nothing is left behind."""
        async with asyncio.timeout(WAIT_S):
            while len(self.tasks):
                await asyncio.sleep(0)
        assert self.dispatcher.held == set()
        assert self.admission.num_requests == 0


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    with ThreadPoolExecutor(1) as threads:
        bench = Bench(threads)
        yield bench
        await bench.idle()


async def read(answer: Answer) -> str:
    async with asyncio.timeout(WAIT_S):
        await answer.accepted()
        return "".join([text async for text in answer.texts()])


async def refused(answer: Answer) -> InferwayError:
    with pytest.raises(InferwayError) as caught:
        await read(answer)
    return caught.value


def says(*texts: str, then: Callable[[FakeAttempt], None] = FakeAttempt.finish) -> Callable[[FakeAttempt], None]:
    """A script: the texts, one token each, then the end."""

    def script(attempt: FakeAttempt) -> None:
        for text in texts:
            attempt.say(text)
        then(attempt)

    return script


def lost(attempt: FakeAttempt) -> None:
    attempt.fail("REPLICA_LOST", lost=True)


async def test_request_that_finishes_is_billed_as_told(bench: Bench) -> None:
    bench.replicas.scripts = [says("a", "b", "", then=lambda attempt: attempt.finish(EndReason.LENGTH, output_tokens=3, cached=2))]
    answer = bench.start(max_output_tokens=3)
    assert await read(answer) == "ab"
    assert answer.ending.finish_reason == "length"
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
    assert (answer.ending.finish_reason, answer.ending.usage) == ("stop", Usage(4, 0, 0))
    assert bench.dispatcher.first_tokens == []


async def test_cached_prompt_tokens_of_the_first_attempt_with_output_count(bench: Bench) -> None:
    def first(attempt: FakeAttempt) -> None:
        attempt.say("a", cached=2)
        lost(attempt)

    def second(attempt: FakeAttempt) -> None:
        attempt.say("b", cached=4)
        attempt.finish(cached=4)

    bench.replicas.scripts = [first, second]
    answer = bench.start()
    await read(answer)
    assert answer.ending.usage.cached_prompt_tokens == 2


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


async def test_replica_lost_before_the_first_token_is_just_another_attempt(bench: Bench) -> None:
    bench.replicas.scripts = [lost, says("a", "b")]
    answer = bench.start()
    assert await read(answer) == "ab"
    first, second = bench.dispatcher.wants
    assert second.excluded_replica_ids == ("r1",)
    assert first.want_id != second.want_id
    assert bench.replicas.attempts[1].attempt.delivered_token_ids == ()
    assert answer.ending.usage == Usage(4, 0, 2)
    assert bench.dispatcher.dones == [(first.want_id, GrantOutcome.REPLICA_LOST), (second.want_id, GrantOutcome.FINISHED)]


async def test_replica_lost_after_tokens_is_resumed_where_the_text_ended(bench: Bench) -> None:
    bench.replicas.scripts = [says("h\u00e9", "l", then=lost), says("l", "o")]
    answer = bench.start(max_output_tokens=10)
    assert await read(answer) == "h\u00e9llo"
    resumed = bench.replicas.attempts[1].attempt
    assert (resumed.delivered_token_ids, resumed.delivered_text_bytes) == ((100, 101), 4)
    assert (resumed.prompt_token_ids, resumed.max_output_tokens, resumed.sampling.seed) == (PROMPT, 10, 1)
    want = bench.dispatcher.wants[1]
    assert (want.prompt_tokens, want.max_output_tokens) == (6, 8)
    (record,) = bench.records.records
    assert answer.ending.usage == Usage(4, 0, 4) == Usage(record.prompt_tokens, 0, record.completion_tokens)
    assert (record.outcome, record.num_attempts) == (Outcome.FINISHED, 2)


async def test_replica_lost_after_its_last_token_makes_that_token_again(bench: Bench) -> None:
    bench.replicas.scripts = [says("a", "b", then=lost), says("", then=lambda attempt: attempt.finish(EndReason.LENGTH))]
    answer = bench.start(max_output_tokens=2)
    assert await read(answer) == "ab"
    resumed = bench.replicas.attempts[1].attempt
    assert (resumed.delivered_token_ids, resumed.delivered_text_bytes, resumed.max_output_tokens) == ((100,), 2, 2)
    assert answer.ending.usage.completion_tokens == 2


async def test_resume_that_nobody_takes_ends_with_the_loss_and_bills_what_was_delivered(bench: Bench) -> None:
    bench.replicas.scripts = [says("a", "b", then=lost)]
    bench.dispatcher.answers = ["", Unavailable("none", reason="NO_READY_REPLICA")]
    answer = bench.start()
    accepted = await answer.accepted()
    assert accepted.completion_id.startswith("chatcmpl-")
    texts = []
    with pytest.raises(Unavailable) as caught:
        async for text in answer.texts():
            texts.append(text)
    assert ("".join(texts), caught.value.reason) == ("ab", "REPLICA_LOST")
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.INTERRUPTED, 4, 2)


async def test_request_is_tried_three_times_at_most(bench: Bench) -> None:
    bench.replicas.scripts = [lost, says("a", then=lost), says("b", then=lost), says("never")]
    assert (await refused(bench.start())).reason == "REPLICA_LOST"
    assert [want.excluded_replica_ids for want in bench.dispatcher.wants] == [(), ("r1",), ("r1", "r2")]
    (record,) = bench.records.records
    assert (record.num_attempts, record.completion_tokens, record.outcome) == (3, 2, Outcome.INTERRUPTED)


async def test_failure_that_is_the_requests_own_is_not_tried_again(bench: Bench) -> None:
    bench.replicas.scripts = [lambda attempt: attempt.fail("NON_FINITE_LOGITS")]
    error = await refused(bench.start())
    assert (error.code, error.reason) == ("INTERNAL", "NON_FINITE_LOGITS")
    assert "fake replica" not in error.message
    assert bench.dispatcher.dones[0][1] is GrantOutcome.FAILED


async def test_full_engine_is_left_for_another(bench: Bench) -> None:
    bench.replicas.scripts = [lambda attempt: attempt.fail("ENGINE_QUEUE_FULL", retryable=True), says("a")]
    assert await read(bench.start()) == "a"


async def test_engine_that_gives_up_unasked_is_as_good_as_lost(bench: Bench) -> None:
    bench.replicas.scripts = [says("a", then=lambda attempt: attempt.finish(EndReason.CANCELLED)), says("b")]
    assert await read(bench.start()) == "ab"


async def test_client_that_waits_for_the_whole_pays_nothing_for_a_part(bench: Bench) -> None:
    bench.replicas.scripts = [says("a", then=lambda attempt: attempt.fail())]
    await refused(bench.start(stream=False))
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.FAILED, 0, 0)


async def test_cancel_after_tokens_bills_what_the_engine_made_until_it_stopped(bench: Bench) -> None:
    bench.replicas.on_cancel = lambda attempt: attempt.finish(EndReason.CANCELLED, output_tokens=5)
    answer = bench.start()
    attempt = await bench.attempt()
    attempt.say("a")
    await answer.accepted()
    answer.cancel()
    assert await read(answer) == "a"
    assert (answer.ending.finish_reason, answer.ending.usage) == ("cancelled", Usage(4, 0, 5))
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.CANCELLED, 4, 5)
    assert bench.dispatcher.dones[0][1] is GrantOutcome.CANCELLED


async def test_cancel_without_an_answer_of_the_engine_bills_what_was_received(bench: Bench) -> None:
    bench.cancel_timeout_s = 0.01
    bench.replicas.on_cancel = lambda attempt: None
    answer = bench.start()
    attempt = await bench.attempt()
    attempt.say("a", num_tokens=3)
    await answer.accepted()
    answer.cancel()
    await bench.idle()
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.CANCELLED, 4, 3)


async def test_cancel_of_a_replica_that_is_lost_meanwhile_bills_what_was_received(bench: Bench) -> None:
    bench.replicas.on_cancel = lost
    answer = bench.start()
    attempt = await bench.attempt()
    attempt.say("a")
    await answer.accepted()
    answer.cancel()
    await bench.idle()
    (record,) = bench.records.records
    assert (record.outcome, record.completion_tokens, record.num_attempts) == (Outcome.CANCELLED, 1, 1)


async def test_cancel_while_it_waits_in_the_queue_costs_nothing(bench: Bench) -> None:
    bench.dispatcher.answers = ["wait"]
    answer = bench.start()
    await bench.dispatcher.waiting.wait()
    answer.cancel()
    error = await refused(answer)
    assert error.code == "CANCELLED"
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.CANCELLED, 0, 0)
    assert bench.replicas.attempts == []


async def test_cancel_before_the_first_token_bills_the_prompt_that_the_engine_took(bench: Bench) -> None:
    answer = bench.start()
    attempt = await bench.attempt()
    answer.cancel()
    assert (await refused(answer)).code == "CANCELLED"
    assert attempt.cancelled.is_set()
    assert (bench.records.records[0].prompt_tokens, bench.records.records[0].completion_tokens) == (4, 0)


async def test_cancel_before_anything_began_stops_it_there(bench: Bench) -> None:
    answer = bench.start()
    answer.cancel()
    assert (await refused(answer)).code == "CANCELLED"
    await bench.idle()
    assert [record.prompt_tokens for record in bench.records.records] == [0]


async def test_cancel_after_the_end_changes_nothing(bench: Bench) -> None:
    bench.replicas.scripts = [says("a")]
    answer = bench.start()
    await read(answer)
    answer.cancel()
    assert bench.records.records[0].outcome is Outcome.FINISHED
    assert answer.ending.finish_reason == "stop"


async def test_deadline_after_tokens_stops_the_engine_and_bills_what_was_made(bench: Bench) -> None:
    bench.replicas.on_cancel = lambda attempt: attempt.finish(EndReason.CANCELLED, output_tokens=2)
    answer = bench.start(timeout_s=0.05)
    attempt = await bench.attempt()
    attempt.say("a")
    assert isinstance(await refused(answer), DeadlineExceeded)
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.DEADLINE, 4, 2)
    assert attempt.attempt.deadline_unix_ms == bench.clock.unix_ms() + 50


async def test_deadline_before_the_first_token_costs_nothing(bench: Bench) -> None:
    answer = bench.start(timeout_s=0.05)
    await bench.attempt()
    assert isinstance(await refused(answer), DeadlineExceeded)
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens) == (Outcome.DEADLINE, 0)


async def test_deadline_that_the_engine_notices_first_is_the_same(bench: Bench) -> None:
    bench.replicas.scripts = [says("a", then=lambda attempt: attempt.finish(EndReason.DEADLINE))]
    assert isinstance(await refused(bench.start()), DeadlineExceeded)
    assert (bench.records.records[0].outcome, bench.records.records[0].completion_tokens) == (Outcome.DEADLINE, 1)


async def test_client_that_hangs_up_at_its_own_deadline_missed_a_deadline(bench: Bench) -> None:
    answer = bench.start(timeout_s=5.0)
    attempt = await bench.attempt()
    attempt.say("a")
    await answer.accepted()
    bench.clock.advance(5.0)
    answer.cancel()
    await bench.idle()
    assert bench.records.records[0].outcome is Outcome.DEADLINE


async def test_shorter_of_both_deadlines_counts(bench: Bench) -> None:
    bench.deadline_s = 7.0
    bench.replicas.scripts = [says("a"), says("a")]
    await read(bench.start(timeout_s=100.0))
    await read(bench.start(timeout_s=3.0))
    assert [want.deadline_unix_ms - bench.clock.unix_ms() for want in bench.dispatcher.wants] == [7000, 3000]


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


async def test_drain_lets_requests_end_and_refuses_new_ones(bench: Bench) -> None:
    answer = bench.start()
    attempt = await bench.attempt()
    bench.admission.close()
    assert (await refused(bench.start())).reason == "DRAINING"
    draining = asyncio.create_task(bench.tasks.drain(WAIT_S))
    attempt.say("a")
    attempt.finish()
    assert await read(answer) == "a"
    await draining


async def test_drain_that_runs_out_of_time_settles_and_tells(bench: Bench) -> None:
    answer = bench.start()
    attempt = await bench.attempt()
    attempt.say("a")
    await answer.accepted()
    await bench.tasks.drain(0)
    assert (await refused(answer)).reason == "DRAINING"
    (record,) = bench.records.records
    assert (record.outcome, record.error_reason, record.completion_tokens) == (Outcome.INTERRUPTED, "DRAINING", 1)


async def test_unforeseen_fault_is_settled_and_hidden(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def bug(attempt: FakeAttempt) -> None:
        raise RuntimeError("a secret")

    bench.replicas.scripts = [bug]
    error = await refused(bench.start())
    assert isinstance(error, Internal)
    assert "secret" not in error.message
    assert bench.records.records[0].outcome is Outcome.FAILED
    assert "unexpected" in caplog.text
