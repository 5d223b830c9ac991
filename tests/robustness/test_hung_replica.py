"""A part that neither answers nor dies: it is found out, requests go on elsewhere, and it comes back without ghosts."""

from __future__ import annotations

import asyncio
import signal

import pytest

from deploy.local.process import ProcessIdentity
from tests.harness.bill import Bill
from tests.harness.eventually import eventually
from tests.harness.measure import at_rest, num_running
from tests.harness.mesh import Mesh
from tests.harness.traffic import Clients, Told

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

NUM_STREAMS = 6
LONG = 60


async def test_en_03_frozen_replica_is_replaced_and_its_streams_go_on_word_for_word(mesh: Mesh) -> None:
    slot, frozen = sorted(mesh.replicas().items())[0]
    told, reference = await freeze_under_load(mesh, frozen)
    assert [one.failure for one in told if one.failure] == []
    assert {one.text for one in told} == {reference}
    await eventually(lambda: mesh.replicas().get(slot) not in (None, frozen), 60)
    await Bill(mesh).until_equal(told)


async def test_en_03_replica_that_wakes_up_leaves_no_ghosts(mesh: Mesh) -> None:
    """It wakes up when its streams have just gone on elsewhere: nobody's work is left in it, and it works again, or its successor does."""
    _, frozen = sorted(mesh.replicas().items())[0]
    told, reference = await freeze_under_load(mesh, frozen)
    frozen.signal(signal.SIGCONT)
    assert {(one.failure, one.text) for one in told} == {("", reference)}
    await at_rest(mesh)
    async with Clients(mesh) as clients:
        again = await asyncio.gather(*(clients.surfaces[number % 3]("hi", LONG) for number in range(2 * NUM_STREAMS)))
    assert {(one.failure, one.text) for one in again} == {("", reference)}
    await Bill(mesh).until_equal([*told, *again])


async def test_frozen_gateway_is_replaced_and_what_it_had_told_is_billed(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        told = await asyncio.gather(*(ask("hi", 10) for ask in clients.surfaces))
    frozen = mesh.child("gateway").identity
    assert frozen is not None
    frozen.signal(signal.SIGSTOP)
    await mesh.until_ready("gateway", frozen, 90)
    assert mesh.child("gateway").last_exit == "did not answer: killed by SIGKILL"
    await at_rest(mesh)
    async with Clients(mesh) as clients:
        told += await asyncio.gather(*(ask("hi", 10) for ask in clients.surfaces))
    assert [one.failure for one in told] == [""] * 6
    await Bill(mesh).until_equal(told)


async def freeze_under_load(mesh: Mesh, replica: ProcessIdentity) -> tuple[list[Told], str]:
    """SIGSTOP one of the replicas while all of them are busy; returns what clients were told, and what they would have been."""
    async with Clients(mesh) as clients:
        reference = (await clients.ask_whole("hi", LONG)).text
        streams = [asyncio.ensure_future(clients.surfaces[number % 3]("hi", LONG)) for number in range(NUM_STREAMS)]

        async def all_run() -> bool:
            return await num_running(mesh) == NUM_STREAMS

        await eventually(all_run)
        replica.signal(signal.SIGSTOP)
        told = await asyncio.gather(*streams)
        told += [await clients.ask_whole("hi", LONG)]
    return told, reference
