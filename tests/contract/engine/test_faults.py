"""Faults inside a replica: a step that fails, for one sequence, once or always, and a step that does not return."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from inferway.metering.v1 import records_pb2
from services.engine.watchdog import StepLoopHung
from tests.harness.engine import GatewayStub, running_engine, wait_load
from tests.harness.gate import start_at_gate
from tests.harness.replica_process import replica_environ
from tests.harness.tiny_model import write_tiny_model

POISON = 199
TIMEOUT_S = 30.0


async def test_poison_ends_alone_and_seven_neighbours_never_notice(tmp_path: Path) -> None:
    async with running_engine(tmp_path, max_num_sequences=8) as (engine, channel):
        gateway = await GatewayStub(channel).hello()
        prompts = {f"a{index}": [10 + index, 20, 30] for index in range(7)}
        references = {name: (await gateway.run(f"{name} alone", prompt_token_ids=prompt)).text for name, prompt in prompts.items()}
        engine.gate.poison = POISON
        await start_at_gate(engine, gateway, "a0", prompt_token_ids=prompts["a0"])
        for name in [*prompts][1:]:
            await gateway.start(name, prompt_token_ids=prompts[name])
        await gateway.start("poison", prompt_token_ids=[10, POISON, 30])
        await wait_load(channel, num_waiting=7, num_running=1)
        engine.gate.open()
        (failed,) = await gateway.until_end("poison")
        neighbours = await gateway.until_end(*prompts)
        assert max(engine.gate.num_sequences) == 8
        assert failed.failed is not None
        assert (failed.failed.reason, failed.failed.retryable, failed.token_ids) == ("STEP_FAILED", False, [])
        assert all(heard.finished is not None for heard in neighbours)
        assert dict(zip(prompts, (heard.text for heard in neighbours), strict=True)) == references
        assert (await gateway.run("after", prompt_token_ids=prompts["a0"])).text == references["a0"]
        assert (await wait_load(channel, num_running=0)).num_used_blocks == 0
        failures = [one.attempt_id for one in await engine.records() if one.outcome == records_pb2.ATTEMPT_OUTCOME_FAILED]
        assert failures == ["poison"]


async def test_poison_while_decoding_keeps_what_was_delivered_and_ends_alone(tmp_path: Path) -> None:
    async with running_engine(tmp_path) as (engine, channel):
        gateway = await GatewayStub(channel).hello()
        reference = await gateway.run("reference", max_output_tokens=60)
        await start_at_gate(engine, gateway, "neighbour", max_output_tokens=60)
        await gateway.start("poison", prompt_token_ids=[10, POISON, 30], max_output_tokens=60)
        await wait_load(channel, num_waiting=1)
        engine.gate.allow(5)
        while len(gateway.heard["poison"].token_ids if "poison" in gateway.heard else []) < 2:
            await gateway.read()
        engine.gate.poison = POISON
        engine.gate.open()
        failed, neighbour = await gateway.until_end("poison", "neighbour")
        assert failed.failed is not None
        assert failed.failed.counts.output_tokens == len(failed.token_ids) >= 2
        assert neighbour.text == reference.text


async def test_numbers_that_are_not_finite_end_their_request_alone_and_leave_nothing_in_the_cache(tmp_path: Path) -> None:
    async with running_engine(tmp_path) as (engine, channel):
        gateway = await GatewayStub(channel).hello()
        prompt = [99, POISON, 30, 40, 50, 60, 70, 80, 90]
        reference = await gateway.run("reference", prompt_token_ids=prompt, cache_salt=b"other")
        num_cached = (await wait_load(channel, num_running=0)).num_cached_blocks
        engine.gate.blinding = POISON
        await gateway.start("neighbour")
        blind = await gateway.run("blind", prompt_token_ids=prompt)
        assert blind.failed is not None
        assert (blind.failed.reason, blind.failed.retryable, blind.token_ids) == ("NON_FINITE_LOGITS", False, [])
        (neighbour,) = await gateway.until_end("neighbour")
        assert neighbour.finished is not None
        load = await wait_load(channel, num_running=0)
        assert load.num_cached_blocks == num_cached + len([10, 20, 30, *neighbour.token_ids[:-1]]) // engine.config.block_size
        engine.gate.blinding = None
        again = await gateway.run("again", prompt_token_ids=prompt)
        assert again.finished is not None
        assert (again.finished.counts.cached_prompt_tokens, again.token_ids) == (0, reference.token_ids)


async def test_step_that_fails_once_is_run_again_and_nobody_notices(tmp_path: Path) -> None:
    async with running_engine(tmp_path) as (engine, channel):
        gateway = await GatewayStub(channel).hello()
        reference = await gateway.run("reference")
        engine.gate.num_failures_wanted = 1
        assert (await gateway.run("a")).token_ids == reference.token_ids
        engine.gate.num_failures_wanted = 1
        for name in ("b", "c", "d"):
            await gateway.start(name)
        assert all(heard.token_ids == reference.token_ids for heard in await gateway.until_end("b", "c", "d"))
        assert all(record.outcome == records_pb2.ATTEMPT_OUTCOME_FINISHED for record in await engine.records())


async def test_runner_that_fails_with_everything_ends_the_service(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with running_engine(tmp_path) as (engine, channel):
            engine.gate.num_failures_wanted = 1000
            gateway = await GatewayStub(channel).hello()
            await gateway.start("a")
            await asyncio.Event().wait()
    assert caught.group_contains(RuntimeError, match="broken on purpose")


async def test_step_that_never_returns_ends_the_service(tmp_path: Path) -> None:
    gates = []
    with pytest.raises(ExceptionGroup) as caught:
        async with running_engine(tmp_path, heartbeat_bound_s=0.2, heartbeat_exit_s=0.4) as (engine, channel):
            gates.append(engine.gate)
            engine.gate.shut()
            gateway = await GatewayStub(channel).hello()
            await gateway.start("a")
            await asyncio.Event().wait()
    assert caught.group_contains(StepLoopHung)
    gates[0].open()


async def test_process_whose_step_never_returns_says_where_it_is_and_ends(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    settings = replica_environ(tmp_path, runner="sim", sim_step_ms=3_600_000, heartbeat_bound_s=0.2, heartbeat_exit_s=0.6)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.engine", env=settings, stderr=subprocess.PIPE)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 1
    lines = [json.loads(line) for line in log.decode().splitlines() if line.startswith("{")]
    (dump,) = [line for line in lines if "stacks" in line]
    assert any(call.startswith("sim_runner.py:") for call in dump["stacks"]["step"])
    assert (dump["step"], dump["num_sequences"], dump["num_tokens"]) == (1, 1, 1)
