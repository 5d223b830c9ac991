"""A replica that neither answers nor dies: it is found out, its requests go on elsewhere, and it comes back without ghosts."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.harness.bill import Bill
from tests.harness.eventually import eventually
from tests.harness.measure import at_rest, num_running
from tests.harness.mesh import Mesh
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

NUM_STREAMS = 6
LONG = 60


async def test_frozen_replica_is_replaced_and_its_streams_go_on_word_for_word(mesh: Mesh) -> None:
    await at_rest(mesh)
    slot, frozen = sorted(mesh.replicas().items())[0]
    async with Clients(mesh) as clients:
        reference = (await clients.ask_whole("hi", LONG)).text
        streams = [asyncio.ensure_future(clients.surfaces[number % 3]("hi", LONG)) for number in range(NUM_STREAMS)]

        async def all_run() -> bool:
            return await num_running(mesh) == NUM_STREAMS

        await eventually(all_run)
        frozen.signal(signal.SIGSTOP)
        told = await asyncio.gather(*streams)
        told += [await clients.ask_whole("hi", LONG)]
    assert [one.failure for one in told if one.failure] == []
    assert {one.text for one in told} == {reference}
    await eventually(lambda: mesh.replicas().get(slot) not in (None, frozen), 60)
    await Bill(mesh).until_equal(told)
    await at_rest(mesh)
