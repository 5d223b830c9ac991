"""A machine that falls silent, replica and node agent alike, closes no connection: gateways find out by themselves, and bill once."""

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


async def test_streams_of_a_silent_machine_go_on_elsewhere_before_it_wakes_up_and_is_told_so(mesh: Mesh) -> None:
    agent, supervisor = mesh.child("node").identity, mesh.status().supervisor
    assert agent is not None
    _, replica = sorted(mesh.replicas().items())[0]
    silent = (supervisor, agent, replica)  # The supervisor would restart the agent, and with it the replica where streams go on.
    async with Clients(mesh) as clients:
        reference = (await clients.ask_whole("hi", LONG)).text
        streams = [asyncio.ensure_future(clients.surfaces[number % 3]("hi", LONG)) for number in range(NUM_STREAMS)]

        async def all_run() -> bool:
            return await num_running(mesh) == NUM_STREAMS

        await eventually(all_run)
        try:
            for process in silent:
                process.signal(signal.SIGSTOP)
            told = await asyncio.gather(*streams)
        finally:
            for process in silent:
                process.signal(signal.SIGCONT)
    assert [one.failure for one in told if one.failure] == []
    assert {one.text for one in told} == {reference}
    await at_rest(mesh)
    await Bill(mesh).until_equal(told)
