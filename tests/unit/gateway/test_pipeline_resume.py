"""A lost replica costs the client a pause: the answer goes on elsewhere, and is billed once."""

import pytest

from services.gateway.answer import Usage
from services.gateway.attempt import EndReason
from services.gateway.dispatch import GrantOutcome
from services.gateway.records import Outcome
from services.kit.errors import DeadlineExceeded, Unavailable
from tests.harness.gateway_bench import PROMPT, Bench, lost, read, refused, says
from tests.harness.gateway_fakes import FakeAttempt


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
        async for pieces in answer.pieces():
            texts += [piece.text for piece in pieces]
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


async def test_token_that_was_told_and_is_not_made_again_in_time_is_billed(bench: Bench) -> None:
    bench.deadline_s = 0.05
    bench.replicas.scripts = [says("a", "b", then=lost), lambda attempt: None]
    answer = bench.start(max_output_tokens=2)
    assert isinstance(await refused(answer), DeadlineExceeded)
    (record,) = bench.records.records
    assert (record.outcome, record.completion_tokens) == (Outcome.DEADLINE, 2)
