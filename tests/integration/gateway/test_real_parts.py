"""The gateway with the real router and real engine processes (the sim runner): what a killed replica was saying is said to the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from inferway.router.v1 import router_pb2, router_pb2_grpc
from services.kit import keyspace
from services.kit.channel import connect
from services.kit.etcd import EtcdClient
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually
from tests.harness.gateway_service import OTHER_SECRET, SECRET, RunningGateway, collect, events, fill_registry, request
from tests.harness.ports import free_port
from tests.harness.tiny_model import NAME, write_tiny_model

pytestmark = pytest.mark.real

WAIT_S = 30.0
ROOT = Path(__file__).parents[3]


@dataclass
class Parts:
    """Real processes by name, and the gateway before them."""

    etcd: EtcdServer
    home: Path
    router_port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    gateway: Any = None

    def start(self, name: str, module: str, **settings: object) -> None:
        """Starts one process of a service."""
        prefix = f"INFERWAY_{module.upper()}_"
        environ = {prefix + key.upper(): str(value) for key, value in {"etcd_endpoints": self.etcd.endpoint, **settings}.items()}
        path = f"{ROOT}:{ROOT / 'protos' / 'gen'}"
        with (self.home / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", f"services.{module}"]
            self.processes[name] = subprocess.Popen(command, env={**os.environ, **environ, "PYTHONPATH": path}, stderr=log)

    def start_replica(self, name: str) -> None:
        self.ports[name] = free_port()
        settings = {"model": NAME, "runner": "sim", "sim_step_ms": 10, "home": self.home, "replica_id": name, "port": self.ports[name]}
        self.start(name, "engine", **settings)

    def kill(self, name: str) -> None:
        """kill -9, and waits for the end of the process."""
        self.processes[name].kill()
        self.processes[name].wait()

    async def connected(self) -> set[str]:
        """Replicas that the router is connected to."""
        async with connect(f"127.0.0.1:{self.router_port}") as channel:
            stub = router_pb2_grpc.RouterStub(channel)
            try:
                response = await stub.ListReplicas(router_pb2.ListReplicasRequest(), timeout=2.0)
            except grpc.aio.AioRpcError:
                return set()
        return {view.replica.replica_id for view in response.replicas if view.connected}

    async def until_connected(self, *names: str) -> None:
        async def condition() -> bool:
            return await self.connected() == set(names)

        await eventually(condition, WAIT_S)

    async def load(self, name: str) -> engine_pb2.WatchLoadResponse:
        """The load that a replica reports now."""
        async with connect(f"127.0.0.1:{self.ports[name]}") as channel:
            call = engine_pb2_grpc.EngineStub(channel).WatchLoad(engine_pb2.WatchLoadRequest(), timeout=WAIT_S)
            load = await call.read()
            call.cancel()
        return load


@contextlib.asynccontextmanager
async def open_parts(directory: Path) -> AsyncIterator[Parts]:
    etcd = EtcdServer(directory / "etcd")
    await etcd.start()
    client = EtcdClient([etcd.endpoint])
    write_tiny_model(directory / "home")
    parts = Parts(etcd, directory / "home")
    try:
        await fill_registry(client)
        parts.start("router", "router", port=parts.router_port)
        for name in ("tiny-0", "tiny-1"):
            parts.start_replica(name)
        async with RunningGateway(parts.home, etcd.endpoint, f"127.0.0.1:{parts.router_port}") as parts.gateway:
            await parts.until_connected("tiny-0", "tiny-1")
            yield parts
    finally:
        for process in parts.processes.values():
            process.kill()
            process.wait()
        await client.delete(keyspace.ROOT, prefix=True)
        await client.close()
        etcd.kill()


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with open_parts(tmp_path) as parts:
        yield parts


def body(seed: int, **fields: Any) -> dict[str, Any]:
    return request(**{"seed": seed, "stream": True, "max_tokens": 120, "stream_options": {"include_usage": True}, **fields})


def told(data: bytes) -> tuple[str, str, int, int]:
    """Text, finish reason and billed tokens of a whole stream; how much of the prompt was cached is another matter."""
    found = events(data)
    assert found.pop() == "[DONE]", found[-1]
    usage = found.pop()["usage"]
    choices = [chunk["choices"][0] for chunk in found]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    return text, choices[-1]["finish_reason"], usage["prompt_tokens"], usage["completion_tokens"]


async def busy_replica(parts: Parts) -> str:
    """The first replica that works on something."""
    found: list[str] = []

    async def any_busy() -> bool:
        for name in parts.ports:
            if (await parts.load(name)).num_running > 0:
                found.append(name)
        return bool(found)

    await eventually(any_busy, WAIT_S)
    return found[0]


@pytest.mark.parametrize("temperature", [0, 1])
async def test_replica_killed_in_mid_stream_changes_nothing_that_the_client_is_told(parts: Parts, temperature: int) -> None:
    seeds = range(6)
    undisturbed = [told(await collect(parts.gateway.chat(body(seed, temperature=temperature, max_tokens=40)))) for seed in seeds]
    calls = [asyncio.create_task(collect(parts.gateway.chat(body(seed, temperature=temperature, max_tokens=40)))) for seed in seeds]
    victim = await busy_replica(parts)
    parts.kill(victim)
    assert [told(data) for data in await asyncio.gather(*calls)] == undisturbed
    records = (await parts.gateway.records())[len(seeds) :]
    assert {record.num_attempts for record in records} == {1, 2}
    assert [(record.prompt_tokens, record.completion_tokens) for record in records] == [(5, 40)] * len(seeds)


async def test_cached_prompt_tokens_are_billed_to_the_tenant_that_sent_the_prompt_before_and_to_no_other(parts: Parts) -> None:
    parts.kill("tiny-1")
    await parts.until_connected("tiny-0")
    question = body(1, max_tokens=12, messages=[{"role": "user", "content": "all about blocks " * 8}])
    usages = []
    for secret in (SECRET, SECRET, OTHER_SECRET, OTHER_SECRET):
        (usage,) = [
            chunk["usage"] for chunk in events(await collect(parts.gateway.chat(question, secret=secret)))[:-1] if chunk.get("usage")
        ]
        usages.append(usage)
    num_prompt = usages[0]["prompt_tokens"]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached == [0, num_prompt - 1, 0, num_prompt - 1]
    assert {usage["prompt_tokens"] for usage in usages} == {num_prompt}
    assert [record.cached_prompt_tokens for record in await parts.gateway.records()] == cached


async def test_client_that_hangs_up_leaves_no_block_in_use(parts: Parts) -> None:
    call = parts.gateway.chat(body(1, max_tokens=400))
    await call.read()
    call.cancel()

    async def all_free() -> bool:
        return all([(load.num_running, load.num_used_blocks) == (0, 0) for load in [await parts.load(name) for name in parts.ports]])

    await eventually(all_free, WAIT_S)
    await eventually(lambda: parts.gateway.service.num_requests == 0)
    (record,) = await parts.gateway.records()
    assert 0 < record.completion_tokens < 400


def choices_of(data: bytes) -> dict[int, tuple[str, list[Any], str]]:
    """Text, log-probabilities and finish reason of every choice of a whole stream."""
    found: dict[int, tuple[str, list[Any], str]] = {}
    for choice in (choice for chunk in events(data)[:-1] for choice in chunk["choices"]):
        text, content, _ = found.get(choice["index"], ("", [], ""))
        content += (choice["logprobs"] or {"content": []})["content"]
        found[choice["index"]] = (text + choice["delta"].get("content", ""), content, choice["finish_reason"])
    return found


async def test_replica_killed_under_several_choices_changes_neither_texts_nor_logprobs_nor_the_bill(parts: Parts) -> None:
    wish = body(5, n=4, logprobs=True, top_logprobs=2, max_tokens=40, temperature=1)
    undisturbed = choices_of(await collect(parts.gateway.chat(wish)))
    call = asyncio.create_task(collect(parts.gateway.chat(wish)))
    parts.kill(await busy_replica(parts))
    assert choices_of(await call) == undisturbed
    assert [len(content) for _, content, _ in undisturbed.values()] == [40] * 4
    first, second = await parts.gateway.records()
    assert (first.prompt_tokens, first.completion_tokens) == (second.prompt_tokens, second.completion_tokens)
    assert (second.completion_tokens, first.num_attempts) == (160, 4)
    assert second.num_attempts > 4


async def test_router_killed_and_back_leaves_streams_alone_and_serves_again(parts: Parts) -> None:
    running = asyncio.create_task(collect(parts.gateway.chat(body(3))))
    await busy_replica(parts)
    parts.kill("router")
    waiting = asyncio.create_task(collect(parts.gateway.chat(body(4, max_tokens=5))))
    parts.start("router", "router", port=parts.router_port)
    assert told(await running)[3] == 120
    assert told(await waiting)[3] == 5
