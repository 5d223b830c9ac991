"""Session on loopback: what a gateway sends, hears, and can do wrong."""

import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from inferway.engine.v1 import engine_pb2
from inferway.metering.v1 import records_pb2
from services.engine.token_bytes import TokenBytes
from services.kit import status
from services.kit.model_store import TOKENIZER, ModelStore
from tests.harness.engine import EngineUnderTest, GatewayStub, Heard, Running, wait_load
from tests.harness.eventually import eventually
from tests.harness.gate import start_at_gate
from tests.harness.tiny_model import NAME, byte_token


async def _has_records(engine: EngineUnderTest, count: int) -> bool:
    return len(await engine.records()) == count


def decode(engine: EngineUnderTest, token_ids: list[int]) -> str:
    vocabulary = TokenBytes.from_json(ModelStore(Path(engine.config.home)).get(NAME).read(TOKENIZER))
    return b"".join(vocabulary[token_id] for token_id in token_ids).decode()


async def test_session_attempt_streams_tokens_text_and_counts(running: Running, gateway: GatewayStub) -> None:
    heard = await gateway.run("a", max_output_tokens=20)
    assert heard.finished is not None
    assert heard.finished.reason == engine_pb2.FINISH_REASON_LENGTH
    assert heard.finished.counts == engine_pb2.AttemptCounts(prompt_tokens=3, output_tokens=20)
    assert len(heard.token_ids) == 20
    assert heard.text == decode(running[0], heard.token_ids)


async def test_session_end_is_told_after_its_record_is_durable(running: Running, gateway: GatewayStub) -> None:
    await gateway.run("a", max_output_tokens=5)
    (record,) = await running[0].records()
    version = ModelStore(Path(running[0].config.home)).get(NAME).version
    assert (record.attempt_id, record.charge_id, record.request_id) == ("a", "charge of a", "request of a")
    assert (record.tenant_id, record.model, record.model_version) == ("tenant-1", NAME, version)
    assert record.outcome == records_pb2.ATTEMPT_OUTCOME_FINISHED
    assert (record.prompt_tokens, record.output_tokens) == (3, 5)
    assert 0 < record.started_unix_ms <= record.ended_unix_ms


async def test_session_many_attempts_get_one_message_per_step(running: Running, gateway: GatewayStub) -> None:
    engine, channel = running
    names = [f"a{index}" for index in range(8)]
    await start_at_gate(engine, gateway, names[0], max_output_tokens=6)
    for name in names[1:]:
        await gateway.start(name, max_output_tokens=6)
    await wait_load(channel, num_waiting=7)
    engine.gate.allow()
    assert await gateway.read()
    steps = []
    for _ in range(4):
        engine.gate.allow()
        message = await gateway.read()
        assert message is not None
        assert {event.attempt_id for event in message.events} == set(names)
        steps.append(message.step)
    assert steps == list(range(steps[0], steps[0] + 4))


async def test_session_cancel_frees_blocks_within_one_step(running: Running, gateway: GatewayStub) -> None:
    engine, channel = running
    engine.gate.shut()
    num_begun = engine.gate.num_begun
    await gateway.start("a", max_output_tokens=100)
    engine.gate.allow(2)
    while len(gateway.heard.get("a", Heard()).token_ids) < 2:
        await gateway.read()
    await eventually(lambda: engine.gate.num_begun == num_begun + 3)  # The third step waits at the gate: it hears of nothing any more.
    await gateway.cancel("a")
    await gateway.start("unknown model", model="other")
    await gateway.until_end("unknown model")
    num_steps = len(engine.gate.num_sequences)
    engine.gate.allow(10)
    (heard,) = await gateway.until_end("a")
    assert heard.finished is not None
    assert heard.finished.reason == engine_pb2.FINISH_REASON_CANCELLED
    assert len(engine.gate.num_sequences) <= num_steps + 1
    assert heard.finished.counts.output_tokens == len(heard.token_ids) == 3
    assert (await wait_load(channel, num_running=0)).num_used_blocks == 0
    assert [record.outcome for record in await engine.records()] == [records_pb2.ATTEMPT_OUTCOME_CANCELLED]


async def test_session_broken_stream_frees_all_attempts(running: Running, gateway: GatewayStub) -> None:
    engine, channel = running
    other = await GatewayStub(channel, "gateway-2").hello()
    await start_at_gate(engine, gateway, "a0", max_output_tokens=400)
    for index in range(1, 5):
        await gateway.start(f"a{index}", max_output_tokens=400)
    await other.start("b", max_output_tokens=4)
    await wait_load(channel, num_waiting=5)
    engine.gate.allow(2)
    await gateway.read()
    gateway.call.cancel()
    engine.gate.open()
    (heard,) = await other.until_end("b")
    assert len(heard.token_ids) == 4
    await wait_load(channel, num_running=0, num_waiting=0, num_used_blocks=0)
    await eventually(lambda: _has_records(engine, 6))
    outcomes = {record.attempt_id: record.outcome for record in await engine.records()}
    assert outcomes.pop("b") == records_pb2.ATTEMPT_OUTCOME_FINISHED
    assert set(outcomes.values()) == {records_pb2.ATTEMPT_OUTCOME_CANCELLED}


async def test_session_same_id_on_two_gateways_are_two_attempts(running: Running, gateway: GatewayStub) -> None:
    other = await GatewayStub(running[1], "gateway-2").hello()
    await gateway.start("same")
    await other.start("same", prompt_token_ids=[7, 7, 7])
    (first,), (second,) = await gateway.until_end("same"), await other.until_end("same")
    assert first.token_ids != second.token_ids
    assert first.token_ids == (await gateway.run("again")).token_ids


async def test_session_used_id_may_be_used_again_after_its_end(gateway: GatewayStub) -> None:
    first = await gateway.run("a")
    gateway.heard.clear()
    assert (await gateway.run("a")).token_ids == first.token_ids


def sampling(**fields: float) -> dict[str, Any]:
    return {"sampling": engine_pb2.AttemptSampling(**{"temperature": 1.0, "top_p": 1.0, **fields})}


async def test_session_stop_string_ends_the_text_before_it(running: Running, gateway: GatewayStub) -> None:
    whole = await gateway.run("whole", max_output_tokens=60)
    stop = whole.text[20:23]
    cut = whole.text.index(stop)
    heard = await gateway.run("stopped", max_output_tokens=60, stop=["never there", stop])
    assert heard.finished is not None
    assert (heard.text, heard.finished.matched_stop) == (whole.text[:cut], stop)
    assert heard.finished.reason == engine_pb2.FINISH_REASON_STOP
    assert heard.token_ids == whole.token_ids[: len(heard.token_ids)]
    assert stop in decode(running[0], heard.token_ids)
    assert stop not in decode(running[0], heard.token_ids[:-1])
    assert heard.finished.counts.output_tokens == len(heard.token_ids)
    record = (await running[0].records())[-1]
    assert (record.output_tokens, record.discarded_tokens) == (len(heard.token_ids), heard.finished.counts.discarded_tokens)


async def test_session_text_held_back_comes_before_the_end(gateway: GatewayStub) -> None:
    whole = await gateway.run("whole", max_output_tokens=10)
    heard = await gateway.run("held", max_output_tokens=10, stop=[whole.text[-2:] + "\x00 something that never comes"])
    assert heard.text == whole.text


@pytest.mark.parametrize("num_delivered", [1, 7, 19])
async def test_session_resume_goes_on_where_the_first_attempt_was(gateway: GatewayStub, num_delivered: int) -> None:
    fields: dict[str, Any] = {"max_output_tokens": 20, **sampling(seed=42)}
    whole = await gateway.run("whole", **fields)
    delivered = whole.token_ids[:num_delivered]
    num_bytes = len(whole.text[:5].encode())
    heard = await gateway.run("resumed", delivered_token_ids=delivered, delivered_text_bytes=num_bytes, **fields)
    assert heard.finished is not None
    assert delivered + heard.token_ids == whole.token_ids
    assert whole.text[:5] + heard.text == whole.text
    assert heard.finished.counts == engine_pb2.AttemptCounts(
        prompt_tokens=3, output_tokens=20 - num_delivered, resumed_tokens=num_delivered, cached_prompt_tokens=2
    )


async def test_session_resume_of_a_complete_answer_ends_at_once(running: Running, gateway: GatewayStub) -> None:
    running[0].gate.shut()
    tokens = [byte_token(byte) for byte in b"abEND"]
    full = await gateway.run("full", delivered_token_ids=tokens, delivered_text_bytes=1, max_output_tokens=5)
    stopped = await gateway.run("stopped", delivered_token_ids=tokens, max_output_tokens=50, stop=["END"])
    assert full.finished is not None
    assert stopped.finished is not None
    assert (full.text, full.finished.reason) == ("bEND", engine_pb2.FINISH_REASON_LENGTH)
    assert (stopped.text, stopped.finished.matched_stop) == ("ab", "END")
    assert stopped.finished.counts == engine_pb2.AttemptCounts(prompt_tokens=3, resumed_tokens=5)


async def test_session_deadline_that_has_passed_ends_before_the_first_token(gateway: GatewayStub) -> None:
    heard = await gateway.run("late", deadline_unix_ms=1)
    assert heard.finished is not None
    assert (heard.finished.reason, heard.token_ids) == (engine_pb2.FINISH_REASON_DEADLINE, [])


async def test_session_deadline_ends_a_running_attempt(running: Running, gateway: GatewayStub) -> None:
    engine, _ = running
    engine.gate.shut()
    deadline = int(time.time() * 1000) + 300
    await gateway.start("a", max_output_tokens=400, deadline_unix_ms=deadline)
    engine.gate.allow(2)
    while not gateway.heard:
        await gateway.read()
    await eventually(lambda: time.time() * 1000 > deadline + 5)
    engine.gate.open()
    (heard,) = await gateway.until_end("a")
    assert heard.finished is not None
    assert heard.finished.reason == engine_pb2.FINISH_REASON_DEADLINE
    assert 2 <= heard.finished.counts.output_tokens == len(heard.token_ids) <= 3


async def test_session_seed_choice_and_company_decide_nothing_else(gateway: GatewayStub) -> None:
    alone = await gateway.run("alone", **sampling(seed=7))
    for index in range(10):
        await gateway.start(f"mate{index}", prompt_token_ids=[index + 5] * 30, max_output_tokens=30)
    together = await gateway.run("together", **sampling(seed=7))
    other_choice = await gateway.run("choice", choice=1, **sampling(seed=7))
    other_seed = await gateway.run("seed", **sampling(seed=8))
    assert together.token_ids == alone.token_ids
    assert len({tuple(heard.token_ids) for heard in (alone, other_choice, other_seed)}) == 3


async def test_session_end_of_requests_lets_running_attempts_finish(gateway: GatewayStub) -> None:
    await gateway.start("a")
    await gateway.call.done_writing()
    (heard,) = await gateway.until_end("a")
    assert heard.finished is not None
    assert await gateway.read() is None
    assert await gateway.call.code() == grpc.StatusCode.OK


async def test_session_without_hello_is_refused(running: Running) -> None:
    gateway = GatewayStub(running[1])
    await gateway.start("a")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.read()
    assert (caught.value.code(), status.from_rpc_error(caught.value).reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")


async def test_session_second_hello_ends_it_and_its_attempts(running: Running, gateway: GatewayStub) -> None:
    await gateway.start("a", max_output_tokens=400)
    await gateway.hello()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await gateway.read():
            pass
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    await wait_load(running[1], num_running=0, num_waiting=0, num_used_blocks=0)


async def test_session_slow_gateway_slows_nobody_and_misses_nothing(running: Running, gateway: GatewayStub) -> None:
    """Its whole output is far beyond what the transport buffers."""
    other = await GatewayStub(running[1], "gateway-2").hello()
    names = [f"{index:02d}" + "x" * 100 for index in range(30)]
    for name in names:
        await gateway.start(name, max_output_tokens=500)
    for index in range(3):
        assert (await other.run(f"quick{index}", max_output_tokens=100)).finished is not None
    await wait_load(running[1], num_running=0, num_waiting=0)
    heard = await gateway.until_end(*names)
    assert {len(one.token_ids) for one in heard} == {500}
    assert len({one.text for one in heard}) == 1
    num_steps = len(running[0].gate.num_sequences)
    assert len(gateway.messages) < num_steps
