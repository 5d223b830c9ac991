"""Faults that users of comparable engines met under cancels and under memory pressure."""

from __future__ import annotations

import asyncio
import random
import statistics
from pathlib import Path

import grpc

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.engine.load import ReplicaLoad
from tests.harness.engine import TIMEOUT_S, GatewayStub, running_engine, wait_load
from tests.harness.eventually import eventually

BLOCK_SIZE, NUM_BLOCKS = 4, 64
NUM_CANCELLED = 500
NUM_UNDER_PRESSURE = 50


async def leave_at_some_moment(channel: grpc.aio.Channel, number: int) -> None:
    """Requests of one gateway, one after the other, a third of them of four choices: each is left while queued, in prefill, while
    decoding or at its last token, by a cancel or with its stream."""
    dice = random.Random(number)
    gateway = await GatewayStub(channel, f"gateway-{number}").hello()
    for index in range(NUM_CANCELLED // 25):
        num_choices = 4 if index % 3 == 0 else 1
        names = [f"{index}/{choice}" for choice in range(num_choices)]
        prompt = [dice.randrange(5, 200) for _ in range(dice.choice((1, 5, 60)))]
        num_tokens = dice.choice((1, 2, 40, 150))
        for choice, name in enumerate(names):
            await gateway.start(name, prompt_token_ids=prompt, choice=choice, max_output_tokens=num_tokens)
        for _ in range(dice.choice((0, 0, 1, 3, 10))):
            if all(name in gateway.heard and gateway.heard[name].ended for name in names):
                break
            await gateway.read()
        for name in names:
            await gateway.cancel(name)
        await gateway.until_end(*names)
    for index in range(dice.randrange(3)):
        await gateway.start(f"left {index}", prompt_token_ids=[7] * 30, max_output_tokens=100)
    gateway.call.cancel()


async def test_en_01_cancelling_at_any_moment_gives_everything_back(tmp_path: Path) -> None:
    limits = {"num_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE, "max_num_sequences": 8, "max_step_tokens": 32, "max_num_waiting": 400}
    async with running_engine(tmp_path, **limits) as (engine, channel):
        async with asyncio.TaskGroup() as tasks:
            for number in range(25):
                tasks.create_task(leave_at_some_moment(channel, number))
        load = await wait_load(channel, num_running=0, num_waiting=0, num_used_blocks=0)
        await eventually(lambda: not engine.replica.engine.has_work)
        records = await engine.records()
        assert len(records) > NUM_CANCELLED
        assert sum(record.output_tokens for record in records) == load.output_tokens_total
        num_steps = len(engine.gate.num_sequences)
        gateway = await GatewayStub(channel).hello()
        large = await gateway.run("large", prompt_token_ids=[9] * 200, max_output_tokens=NUM_BLOCKS * BLOCK_SIZE - 200)
        assert len(large.token_ids) == NUM_BLOCKS * BLOCK_SIZE - 200
        assert set(engine.gate.num_sequences[num_steps:]) == {1}, "somebody else was still computed"


async def watch_for_idleness(channel: grpc.aio.Channel, stop: asyncio.Event) -> int:
    """How often in a row, at most, the engine said that it does nothing although work waits inside."""
    call = engine_pb2_grpc.EngineStub(channel).WatchLoad(engine_pb2.WatchLoadRequest(), timeout=TIMEOUT_S)
    longest = present = 0
    while not stop.is_set():
        load = await call.read()
        present = present + 1 if load.num_waiting and not load.num_running else 0
        longest = max(longest, present)
    call.cancel()
    return longest


async def test_en_02_kv_pressure_is_slow_but_right_and_fair(tmp_path: Path) -> None:
    dice = random.Random(2)
    prompts = [[dice.randrange(5, 200) for _ in range(dice.randrange(4, 12))] for _ in range(NUM_UNDER_PRESSURE)]
    lengths = [dice.randrange(12, 24) for _ in prompts]
    assert sum(len(prompt) + length for prompt, length in zip(prompts, lengths, strict=True)) > 5 * NUM_BLOCKS * BLOCK_SIZE * 0.9
    limits = {"num_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE, "max_num_sequences": 32, "max_num_waiting": 100}
    async with running_engine(tmp_path, **limits) as (engine, channel):
        gateway = await GatewayStub(channel).hello()
        names = [f"{index}" for index in range(NUM_UNDER_PRESSURE)]
        alone = []
        for prompt, length in zip(prompts, lengths, strict=True):
            alone.append(await gateway.run("alone", prompt_token_ids=prompt, max_output_tokens=length))
            del gateway.heard["alone"]
        engine.gate.shut()
        first_message = len(gateway.messages)
        for name, prompt, length in zip(names, prompts, lengths, strict=True):
            await gateway.start(name, prompt_token_ids=prompt, max_output_tokens=length)
        await eventually(lambda: _num_inside(engine.replica.engine.load()) == NUM_UNDER_PRESSURE)
        first_step, done = len(engine.gate.num_sequences), asyncio.Event()
        watching = asyncio.ensure_future(watch_for_idleness(channel, done))
        engine.gate.open()
        told = await gateway.until_end(*names)
        done.set()
        assert [heard.token_ids for heard in told] == [heard.token_ids for heard in alone]
        assert engine.replica.engine.load().batch.num_preemptions > 0
        assert min(engine.gate.num_sequences[first_step:]) >= 1
        assert await watching <= 1
        ends = end_steps(gateway.messages[first_message:])
        waits = sorted(ends[name] - first_step for name in names)
        assert waits[-1] <= 5 * statistics.median(waits)
        assert (await wait_load(channel, num_running=0, num_waiting=0)).num_used_blocks == 0


def _num_inside(load: ReplicaLoad) -> int:
    return load.num_waiting + load.batch.num_running


def end_steps(messages: list[engine_pb2.SessionResponse]) -> dict[str, int]:
    """In which step each attempt ended."""
    return {event.attempt_id: message.step for message in messages for event in message.events if event.HasField("finished")}
