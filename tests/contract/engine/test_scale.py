"""A thousand attempts on one stream, several gateways, one that does not read, and storms of cancels: everybody gets what is theirs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.engine.load import MIN_GAP_S
from tests.harness.engine import TIMEOUT_S, EngineUnderTest, GatewayStub, Running, running_engine, wait_load
from tests.harness.eventually import eventually

pytestmark = pytest.mark.timeout(180)

NUM_ATTEMPTS = 1000
NUM_PROMPTS = 20
NUM_TOKENS = 12
LONG = 120
PATIENCE_S = 60.0
"""A reader's request waits its turn behind a hundred thousand tokens, which take some seconds on an idle machine."""
SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 64 * 1024))


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_engine(tmp_path, max_num_sequences=64, max_num_waiting=2000, num_blocks=2048) as running:
        yield running


def prompt(index: int) -> list[int]:
    """One of NUM_PROMPTS different ones."""
    return [10 + index % NUM_PROMPTS] * 5


async def start_all(gateway: GatewayStub, num_attempts: int, num_tokens: int = NUM_TOKENS) -> list[str]:
    names = [f"{index}" for index in range(num_attempts)]
    for index, name in enumerate(names):
        await gateway.start(name, prompt_token_ids=prompt(index), max_output_tokens=num_tokens)
    return names


async def ask_one_by_one(gateway: GatewayStub) -> list[str]:
    """The answer to each prompt, asked for when the one before is there."""
    texts = []
    for index in range(NUM_PROMPTS):
        heard = await gateway.run(f"{index} of a row", prompt_token_ids=prompt(index), max_output_tokens=NUM_TOKENS)
        texts.append(heard.text)
        del gateway.heard[f"{index} of a row"]
    return texts


async def test_scale_a_thousand_attempts_on_one_stream_beside_others_are_all_answered_right(running: Running) -> None:
    engine, channel = running
    gateways = [await GatewayStub(channel, f"gateway-{number}").hello() for number in range(4)]
    alone = await ask_one_by_one(gateways[0])
    counts = [NUM_ATTEMPTS, 50, 50, 50]
    names = await asyncio.gather(*(start_all(gateway, count) for gateway, count in zip(gateways, counts, strict=True)))
    told = await asyncio.gather(*(gateway.until_end(*mine) for gateway, mine in zip(gateways, names, strict=True)))
    for heard in told:
        assert [one.text for one in heard] == [alone[index % NUM_PROMPTS] for index in range(len(heard))]
        assert all(one.finished is not None and one.finished.counts.output_tokens == NUM_TOKENS for one in heard)
    load = await wait_load(channel, num_running=0, num_waiting=0, num_used_blocks=0)
    assert load.output_tokens_total == (sum(counts) + NUM_PROMPTS) * NUM_TOKENS
    assert len(await engine.records()) == sum(counts) + NUM_PROMPTS


async def test_scale_a_gateway_that_does_not_read_slows_nobody_and_gets_everything_in_few_messages(running: Running) -> None:
    engine, channel = running
    reader = await GatewayStub(channel, "reader", PATIENCE_S).hello()
    alone = await ask_one_by_one(reader)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{engine.port}", options=SMALL_WINDOW) as narrow:
        deaf = await GatewayStub(narrow, "deaf", PATIENCE_S).hello()
        names = await start_all(deaf, NUM_ATTEMPTS, LONG)
        assert await ask_one_by_one(reader) == alone
        await eventually(lambda: not engine.replica.engine.has_work, PATIENCE_S)  # All of it is computed, and little of it sent.
        await wait_load(channel, num_running=0, num_waiting=0)
        heard = await deaf.until_end(*names)
        deaf.call.cancel()
    assert {len(one.token_ids) for one in heard} == {LONG}
    assert len({one.text for one in heard}) == NUM_PROMPTS
    assert len(deaf.messages) < len(engine.gate.num_sequences) / 4


def num_accepted(engine: EngineUnderTest) -> int:
    load = engine.replica.engine.load()
    return load.num_waiting + load.batch.num_running


async def test_scale_a_storm_of_cancels_ends_each_attempt_once_and_gives_everything_back(running: Running) -> None:
    engine, channel = running
    gateway, other = await GatewayStub(channel).hello(), await GatewayStub(channel, "gateway-2").hello()
    engine.gate.shut()
    names = await start_all(gateway, NUM_ATTEMPTS, 400)
    mine = await start_all(other, 10)  # By the same names.
    for _ in range(3):
        for name in (*names, "nobody", *reversed(names)):
            await gateway.cancel(name)
    await gateway.start("last", max_output_tokens=1)
    await eventually(
        lambda: engine.replica.engine.load().num_starting + engine.replica.engine.load().batch.num_running == NUM_ATTEMPTS + 11
    )
    engine.gate.open()
    (last,) = await gateway.until_end("last")
    assert last.finished is not None
    heard = await gateway.until_end(*names)
    assert {one.finished.reason for one in heard if one.finished is not None} == {engine_pb2.FINISH_REASON_CANCELLED}
    assert all(one.finished is not None for one in await other.until_end(*mine))
    await wait_load(channel, num_running=0, num_waiting=0, num_used_blocks=0)
    assert len(await engine.records()) == NUM_ATTEMPTS + 11
    ended = [event.attempt_id for message in gateway.messages for event in message.events if not event.HasField("delta")]
    assert sorted(ended) == sorted([*names, "last"])


async def test_scale_the_load_is_told_seldom_however_many_steps_run(running: Running) -> None:
    engine, channel = running
    gateway = await GatewayStub(channel).hello()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    watch = engine_pb2_grpc.EngineStub(channel).WatchLoad(engine_pb2.WatchLoadRequest(), timeout=TIMEOUT_S)
    names = await start_all(gateway, 200, 100)
    ending = asyncio.ensure_future(gateway.until_end(*names))
    loads = [await watch.read()]
    while loads[-1].output_tokens_total < 200 * 100:
        loads.append(await watch.read())
    elapsed_s = loop.time() - begin
    watch.cancel()
    await ending
    assert len(engine.gate.num_sequences) > 300
    assert len(loads) <= elapsed_s / MIN_GAP_S + 2
