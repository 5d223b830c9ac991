"""Many attempts, cancelled, broken off and late at random moments: everything comes back and every token is counted once."""

import asyncio
import random
import time
from pathlib import Path

import grpc

from inferway.engine.v1 import engine_pb2
from inferway.metering.v1 import records_pb2
from tests.harness.engine import EngineUnderTest, GatewayStub, running_engine, wait_load
from tests.harness.eventually import eventually

NUM_GATEWAYS, NUM_ATTEMPTS = 4, 75
NUM_BLOCKS, BLOCK_SIZE = 64, 4


async def talk(gateway: GatewayStub, dice: random.Random, break_off: bool) -> None:
    """Start attempts, cancel a third of them at some moment, and hear all ends or break the stream off."""
    names = [f"{index}" for index in range(NUM_ATTEMPTS)]
    for name in names:
        fields = {
            "prompt_token_ids": [dice.randrange(5, 200) for _ in range(dice.randrange(1, 60))],
            "max_output_tokens": dice.randrange(1, 120),
            "stop": dice.choice([[], ["q"], ["th", "zz"]]),
            "deadline_unix_ms": dice.choice([0, 0, 0, int(time.time() * 1000) + dice.randrange(200)]),
        }
        await gateway.start(name, **fields)
        if dice.random() < 0.33:
            for _ in range(dice.randrange(3)):
                await gateway.read()
            await gateway.cancel(dice.choice(names))
    if break_off:
        gateway.call.cancel()
    else:
        await gateway.until_end(*names)


async def all_recorded(engine: EngineUnderTest, channel: grpc.aio.Channel) -> list[records_pb2.AttemptRecord]:
    """The records, once nothing runs any more."""
    load = await wait_load(channel, num_running=0, num_waiting=0, num_used_blocks=0)
    await eventually(lambda: not engine.replica.engine.has_work)
    records = await engine.records()
    assert sum(record.output_tokens for record in records) == load.output_tokens_total
    return records


async def test_storm_gives_everything_back_and_counts_every_token_once(tmp_path: Path) -> None:
    limits = {"num_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE, "max_num_sequences": 8, "max_step_tokens": 32, "max_num_waiting": 400}
    async with running_engine(tmp_path, **limits) as (engine, channel):
        gateways = [await GatewayStub(channel, f"gateway-{index}").hello() for index in range(NUM_GATEWAYS)]
        async with asyncio.TaskGroup() as tasks:
            for index, gateway in enumerate(gateways):
                tasks.create_task(talk(gateway, random.Random(index), break_off=index == 0))
        records = await all_recorded(engine, channel)
        told = [heard for gateway in gateways[1:] for heard in gateway.heard.values()]
        for heard in told:
            assert heard.finished is not None
            assert heard.finished.counts.output_tokens == len(heard.token_ids)
        assert len(records) >= len(told) == (NUM_GATEWAYS - 1) * NUM_ATTEMPTS
        reasons = {heard.finished.reason for heard in told if heard.finished is not None}
        assert reasons == {
            engine_pb2.FINISH_REASON_STOP,
            engine_pb2.FINISH_REASON_LENGTH,
            engine_pb2.FINISH_REASON_CANCELLED,
            engine_pb2.FINISH_REASON_DEADLINE,
        }
        large = await gateways[1].run("large", prompt_token_ids=[9] * 100, max_output_tokens=NUM_BLOCKS * BLOCK_SIZE - 100)
        assert len(large.token_ids) == NUM_BLOCKS * BLOCK_SIZE - 100
