"""A request that is cut short, by its client, its deadline, a drain or a fault, is settled exactly once."""

import asyncio

import pytest

from services.gateway.answer import Usage
from services.gateway.attempt import EndReason
from services.gateway.dispatch import GrantOutcome
from services.gateway.records import Outcome
from services.kit.errors import DeadlineExceeded, Internal
from tests.harness.eventually import eventually
from tests.harness.gateway_bench import WAIT_S, Bench, lost, read, refused, says
from tests.harness.gateway_fakes import FakeAttempt


async def test_cancel_after_tokens_bills_what_the_engine_made_until_it_stopped(bench: Bench) -> None:
    bench.replicas.on_cancel = lambda attempt: attempt.finish(EndReason.CANCELLED, output_tokens=5)
    answer = bench.start()
    attempt = await bench.attempt()
    attempt.say("a")
    await answer.accepted()
    answer.cancel()
    assert await read(answer) == "a"
    assert (answer.ending.finish_reasons, answer.ending.usage) == (("cancelled",), Usage(4, 0, 5))
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


async def test_cancel_after_the_deadline_is_no_error_and_stays_a_deadline(bench: Bench) -> None:
    """A client whose own deadline has passed hangs up in the very moment in which the request is being stopped for it."""
    bench.deadline_s = 0.01
    bench.replicas.on_cancel = lambda attempt: None
    answer = bench.start()
    attempt = await bench.attempt()
    attempt.say("a")
    await asyncio.wait_for(attempt.cancelled.wait(), WAIT_S)
    bench.clock.advance(0.01)
    answer.cancel()
    attempt.finish(EndReason.CANCELLED, output_tokens=2)
    await bench.idle()
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.DEADLINE, 4, 2)


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
    assert answer.ending.finish_reasons == ("stop",)


async def test_deadline_after_tokens_stops_the_engine_and_bills_what_was_made(bench: Bench) -> None:
    bench.replicas.on_cancel = lambda attempt: attempt.finish(EndReason.CANCELLED, output_tokens=2)
    answer = bench.start(timeout_s=0.05)
    attempt = await bench.attempt()
    attempt.say("a")
    assert isinstance(await refused(answer), DeadlineExceeded)
    (record,) = bench.records.records
    assert (record.outcome, record.prompt_tokens, record.completion_tokens) == (Outcome.DEADLINE, 4, 2)
    assert attempt.attempt.deadline_unix_ms == bench.clock.unix_ms() + 45


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


async def test_shorter_of_both_deadlines_counts_and_the_clients_leaves_time_to_tell_it(bench: Bench) -> None:
    """A call that its own deadline cuts off is told nothing, or by the edge that something is broken."""
    bench.deadline_s = 7.0
    bench.replicas.scripts = [says("a"), says("a")]
    await read(bench.start(timeout_s=100.0))
    await read(bench.start(timeout_s=3.0))
    assert [want.deadline_unix_ms - bench.clock.unix_ms() for want in bench.dispatcher.wants] == [7000, 2900]


async def test_drain_that_runs_out_of_time_while_the_bill_is_written_tells_what_is_billed(bench: Bench) -> None:
    bench.records.gate = asyncio.Event()
    bench.replicas.scripts = [says("a")]
    answer = bench.start()
    await answer.accepted()
    await eventually(lambda: bench.records.num_begun == 1)
    draining = asyncio.create_task(bench.tasks.drain(0))
    for _ in range(10):  # Turns of the event loop, until the drain has cancelled what is in work.
        await asyncio.sleep(0)
    bench.records.gate.set()
    await draining
    assert await read(answer) == "a"
    (record,) = bench.records.records
    assert (record.outcome, record.completion_tokens) == (Outcome.FINISHED, answer.ending.usage.completion_tokens)


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
