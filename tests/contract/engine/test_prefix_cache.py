"""The prefix cache on loopback: what is billed as cached, whose it is, and what watchers are told of it."""

import asyncio
from pathlib import Path
from typing import Any

import grpc

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from tests.harness.engine import TIMEOUT_S, GatewayStub, Running, running_engine, wait_load
from tests.harness.gate import start_at_gate

PROMPT = list(range(10, 31))


async def cached(gateway: GatewayStub, attempt_id: str, **fields: Any) -> int:
    """Prompt tokens of one attempt that were read from the cache; delta and end say the same."""
    heard = await gateway.run(attempt_id, **{"prompt_token_ids": PROMPT, **fields})
    assert heard.finished is not None
    events = [event for message in gateway.messages for event in message.events if event.attempt_id == attempt_id]
    told = [event.delta.cached_prompt_tokens for event in events if event.WhichOneof("kind") == "delta"]
    assert told[0] == heard.finished.counts.cached_prompt_tokens
    assert not any(told[1:])
    return told[0]


class KvWatch:
    """One watcher and what it believes to be cached."""

    def __init__(self, channel: grpc.aio.Channel, start: int = 0) -> None:
        self._call = engine_pb2_grpc.EngineStub(channel).WatchKvEvents(
            engine_pb2.WatchKvEventsRequest(start_sequence_number=start), timeout=60
        )
        self.hashes: set[bytes] = set()
        self.numbers: list[int] = []

    async def read(self) -> engine_pb2.WatchKvEventsResponse:
        """The next message."""
        async with asyncio.timeout(TIMEOUT_S):
            message = await self._call.read()
        assert message is not grpc.aio.EOF
        self.numbers.append(message.sequence_number)
        for event in message.events:
            match event.WhichOneof("kind"):
                case "cleared":
                    self.hashes.clear()
                case "stored":
                    assert event.stored.parent_hash in {b"", *self.hashes}
                    assert not self.hashes & set(event.stored.block_hashes)
                    self.hashes |= set(event.stored.block_hashes)
                case "removed":
                    assert set(event.removed.block_hashes) <= self.hashes
                    self.hashes -= set(event.removed.block_hashes)
        return message

    async def until(self, num_hashes: int) -> None:
        """Read until so many blocks are cached."""
        while len(self.hashes) != num_hashes:
            await self.read()

    def cancel(self) -> None:
        """Hang up."""
        self._call.cancel()


async def test_same_tenant_finds_its_prompt_and_another_does_not(running: Running, gateway: GatewayStub) -> None:
    salts = [b"tenant a", b"tenant a", b"tenant b", b"", b"", b"tenant b"]
    found = [await cached(gateway, f"a{index}", cache_salt=salt) for index, salt in enumerate(salts)]
    assert found == [0, 20, 0, 0, 20, 20]
    assert [record.cached_prompt_tokens for record in await running[0].records()] == found
    load = await wait_load(running[1], num_running=0)
    assert (load.cached_prompt_tokens_total, load.num_used_blocks, load.num_cached_blocks > 0) == (60, 0, True)


async def test_choices_of_one_request_compute_the_prompt_once(running: Running, gateway: GatewayStub) -> None:
    engine, channel = running
    await start_at_gate(engine, gateway, "choice 0", prompt_token_ids=PROMPT, choice=0)
    for choice in range(1, 4):
        await gateway.start(f"choice {choice}", prompt_token_ids=PROMPT, choice=choice)
    await wait_load(channel, num_waiting=3)
    engine.gate.open()
    heard = await gateway.until_end(*(f"choice {choice}" for choice in range(4)))
    assert [one.finished.counts.cached_prompt_tokens for one in heard if one.finished] == [0, 20, 20, 20]


async def test_prompt_logprobs_leave_the_cache_alone(gateway: GatewayStub) -> None:
    assert await cached(gateway, "a") == 0
    assert await cached(gateway, "b", num_prompt_logprobs=0) == 0
    assert await cached(gateway, "c") == 20


async def test_watchers_hear_the_same_and_a_later_one_catches_up(running: Running, gateway: GatewayStub) -> None:
    watches = [KvWatch(running[1]), KvWatch(running[1])]
    for watch in watches:
        assert (await watch.read()).events[0].WhichOneof("kind") == "cleared"
    await gateway.run("a", prompt_token_ids=PROMPT, max_output_tokens=8)
    for watch in watches:
        await watch.until(7)  # Of 28 computed positions.
        assert watch.numbers == list(range(watch.numbers[0], watch.numbers[0] + len(watch.numbers)))
    late = KvWatch(running[1])
    await late.read()
    assert late.hashes == watches[0].hashes == watches[1].hashes
    assert all(len(block_hash) == 32 for block_hash in late.hashes)


async def test_watch_goes_on_from_a_number(running: Running, gateway: GatewayStub) -> None:
    first = KvWatch(running[1])
    await gateway.run("a", prompt_token_ids=PROMPT, max_output_tokens=1)
    await first.until(5)
    first.cancel()
    await gateway.run("b", prompt_token_ids=[*PROMPT[:8], *PROMPT], max_output_tokens=1)
    second = KvWatch(running[1], start=first.numbers[-1] + 1)
    second.hashes = set(first.hashes)
    await second.until(10)
    assert second.numbers[0] == first.numbers[-1] + 1


async def test_evicted_blocks_are_told(tmp_path: Path) -> None:
    async with running_engine(tmp_path, num_blocks=16) as (_, channel):
        gateway, watch = await GatewayStub(channel).hello(), KvWatch(channel)
        for index in range(6):
            await gateway.run(f"a{index}", prompt_token_ids=[index, *PROMPT], max_output_tokens=4)
        load = await wait_load(channel, num_running=0)
        late = KvWatch(channel)
        await late.read()
        assert 0 < len(late.hashes) == load.num_cached_blocks <= 16
        while watch.numbers[-1:] != late.numbers:
            await watch.read()
        assert watch.hashes == late.hashes


async def test_number_of_an_earlier_life_gets_a_snapshot(tmp_path: Path) -> None:
    async with running_engine(tmp_path) as (_, channel):
        watch = KvWatch(channel)
        await (await GatewayStub(channel).hello()).run("a", prompt_token_ids=PROMPT, max_output_tokens=1)
        await watch.until(5)
    async with running_engine(tmp_path) as (_, channel):
        again = KvWatch(channel, start=watch.numbers[-1] + 1)
        again.hashes = set(watch.hashes)
        message = await again.read()
        assert message.events[0].WhichOneof("kind") == "cleared"
        assert again.hashes == set()
        assert message.sequence_number > watch.numbers[-1] + 1


async def test_watcher_that_does_not_read_holds_nobody_up(running: Running, gateway: GatewayStub) -> None:
    slow = KvWatch(running[1])
    await slow.read()
    for index in range(40):
        heard = await gateway.run(f"a{index}", prompt_token_ids=[index, *PROMPT], max_output_tokens=40)
        assert len(heard.token_ids) == 40
    late = KvWatch(running[1])
    await late.read()
    while slow.numbers[-1] < late.numbers[-1]:
        await slow.read()
    assert slow.hashes == late.hashes
