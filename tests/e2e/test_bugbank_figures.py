"""Faults of comparable systems in what they say about themselves: figures that disagree, series that callers can add, logs that talk."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter

import grpc
import pytest

from services.kit.channel import connect
from tests.harness.bill import Bill
from tests.harness.measure import IN_WORK, at_rest, scrape
from tests.harness.mesh import Mesh
from tests.harness.rest import Rest
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SETTLED = re.compile(r'inferway_gateway_settled_requests_total{.*outcome="(\w+)".*}')
PROMPT = 'inferway_gateway_billed_tokens_total{kind="prompt"'
COMPLETION = 'inferway_gateway_billed_tokens_total{kind="completion"'
TTFT = "inferway_gateway_ttft_seconds_count"
NUM_ROUNDS, NUM_CALLERS = 5, 4


def total(series: dict[str, float], prefix: str) -> float:
    return sum(value for name, value in series.items() if name.startswith(prefix))


def outcomes(series: dict[str, float]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, value in series.items():
        if match := SETTLED.match(name):
            found[match.group(1)] += int(value)
    return found


async def test_ob_03_counters_tell_one_story(mesh: Mesh) -> None:
    await at_rest(mesh)
    before = await scrape(mesh.ports.gateway_metrics)
    async with Rest(mesh) as rest, Clients(mesh) as clients:
        finished = await asyncio.gather(*(ask("hi", 5) for ask in clients.surfaces * 2))
        gone = await asyncio.gather(*(leave_after_first_delta(clients) for _ in range(4)))
        refused = await asyncio.gather(*(rest.chat(model=f"no-{n}") for n in range(3)))
    assert {one.failure for one in finished} == {""} and {answer.status_code for answer in refused} == {404}
    rows = await Bill(mesh).until_rows([one.completion_id for one in finished] + gone)
    await at_rest(mesh)
    after = await scrape(mesh.ports.gateway_metrics)

    assert outcomes(after) - outcomes(before) == {"finished": 6, "cancelled": 4}
    assert [row.outcome for row in rows] == ["finished"] * 6 + ["cancelled"] * 4
    assert total(after, TTFT) - total(before, TTFT) == 10
    assert total(after, PROMPT) - total(before, PROMPT) == sum(row.prompt_tokens for row in rows)
    assert total(after, COMPLETION) - total(before, COMPLETION) == sum(row.completion_tokens for row in rows)
    assert sum(attempt.output_tokens for row in rows for attempt in row.attempts) == sum(row.completion_tokens for row in rows)
    assert after[IN_WORK] == 0


async def leave_after_first_delta(clients: Clients) -> str:
    call = clients.generate("hi", 500)
    completion_id = ""
    async for message in call:
        completion_id = completion_id or message.accepted.completion_id
        if message.HasField("delta"):
            call.cancel()
            return completion_id
    raise AssertionError("the stream ended before its first delta")


async def noise(mesh: Mesh, rest: Rest, clients: Clients) -> None:
    """Everything that a caller can name, under a name that nobody used before."""
    name = uuid.uuid4().hex
    await rest.chat(model=name)
    await rest.chat(**{name: 1})
    await rest.chat(user=name, max_tokens=1, headers={f"x-{name}": name, "user-agent": name})
    await rest.http.get(f"/v1/models/{name}")
    await rest.http.get(f"/{name}")
    await rest.http.request(name[:8].upper(), "/v1/models")
    async with connect(f"127.0.0.1:{mesh.ports.gateway_grpc}") as direct:
        for channel, method in ((clients.channel, f"/inferway.edge.v1.Inference/{name}"), (direct, f"/{name}/{name}")):
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(method)(b"", timeout=5, metadata=(("authorization", f"Bearer {mesh.key}"),))


async def test_ob_01_callers_cannot_grow_the_metrics(mesh: Mesh) -> None:
    ports = (mesh.ports.gateway_metrics, mesh.ports.router_metrics, mesh.ports.metering_metrics, mesh.ports.scheduler_metrics)

    async def series() -> set[str]:
        return {name for port in ports for name in await scrape(port)}

    async with Rest(mesh) as rest, Clients(mesh) as clients:
        await noise(mesh, rest, clients)
        await at_rest(mesh)
        before = await series()
        for _ in range(NUM_ROUNDS):
            await asyncio.gather(*(noise(mesh, rest, clients) for _ in range(NUM_CALLERS)))
        await at_rest(mesh)
        grown = await series() - before
    assert len(grown) < NUM_ROUNDS * NUM_CALLERS, sorted(grown)


async def test_ob_02_logs_hold_neither_prompt_nor_answer_nor_key_when_things_go_wrong(mesh: Mesh) -> None:
    marker = f"marker{uuid.uuid4().hex}"
    message = [{"role": "user", "content": marker}]
    async with Rest(mesh) as rest, Clients(mesh) as clients:
        answer = await rest.answer(messages=message, max_tokens=12)
        for fields in ({"temperature": marker}, {"stop": [marker] * 5}, {marker: 1}, {"messages": marker}, {"model": marker}):
            assert (await rest.chat(**{"messages": message, **fields})).status_code in (400, 404)
        call = clients.generate(marker, 500)
        async for reply in call:
            if reply.HasField("delta"):
                call.cancel()
                break
    await at_rest(mesh)
    secrets = (marker, mesh.key, mesh.operator_key, answer["choices"][0]["message"]["content"])
    logs = {log.name: log.read_text(errors="replace") for log in mesh.home.logs.iterdir()}
    assert "request settled" in logs["gateway.log"]
    assert [(name, number) for name, text in logs.items() for number, secret in enumerate(secrets) if secret in text] == []
