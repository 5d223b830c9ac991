"""More work than fits: it waits its turn and stays right, is shared fairly, or is refused at once with the time to come back."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.harness.bill import Bill
from tests.harness.mesh import Mesh
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


async def test_more_work_than_memory_is_slow_but_right(mesh: Mesh) -> None:
    """Ten prompts, each of nearly half of what a replica can remember: two fit on each, the others wait."""
    prompts = [f"{number} " + "word " * 7000 for number in range(3)]
    async with Clients(mesh) as clients:
        alone = {prompt: await clients.ask_whole(prompt, 8) for prompt in prompts}
        told = await asyncio.gather(*(clients.surfaces[number % 3](prompts[number % 3], 8) for number in range(10)))
    assert [one.failure for one in told if one.failure] == []
    assert all(one.text == alone[one.prompt].text for one in told)
    await Bill(mesh).until_equal(told)


async def test_idle_replicas_share_cold_traffic(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        told = await asyncio.gather(*(clients.ask_grpc(f"Question number {number}?", 30) for number in range(20)))
    rows = await Bill(mesh).until_rows([one.completion_id for one in told])
    shares = Counter(row.attempts[0].replica_id for row in rows)
    assert len(shares) == 2 and min(shares.values()) >= 0.4 * len(rows), shares
