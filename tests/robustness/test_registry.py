"""A registry that forgets, is compacted or falls silent: whoever lives is registered, and nobody who has a key is called a stranger."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from services.kit import keyspace
from services.kit.etcd import EtcdClient
from tests.harness.bill import Bill
from tests.harness.eventually import eventually
from tests.harness.measure import num_running
from tests.harness.mesh import MODEL, Mesh
from tests.harness.rest import Rest
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

NUM_STREAMS = 4
LONG = 100


@pytest.fixture
async def registry(mesh: Mesh) -> AsyncIterator[EtcdClient]:
    client = EtcdClient((f"127.0.0.1:{mesh.ports.etcd_client}",))
    yield client
    await client.close()


async def leases(registry: EtcdClient, prefix: str) -> dict[str, int]:
    return {kv.key: kv.lease for kv in (await registry.get_prefix(prefix)).kvs}


@pytest.mark.parametrize("prefix", [keyspace.replicas(MODEL), keyspace.nodes()])
async def test_owner_whose_lease_is_gone_registers_again_and_its_streams_do_not_notice(
    mesh: Mesh, registry: EtcdClient, prefix: str
) -> None:
    before, processes = await leases(registry, prefix), mesh.replicas()
    async with Clients(mesh) as clients:
        reference = (await clients.ask_whole("hi", LONG)).text
        streams = [asyncio.ensure_future(clients.ask_stream("hi", LONG)) for _ in range(NUM_STREAMS)]

        async def all_run() -> bool:
            return await num_running(mesh) == NUM_STREAMS

        await eventually(all_run)
        for _ in range(5):
            now = await leases(registry, prefix)
            for lease in now.values():
                await registry.revoke(lease)

            async def is_back(lost: dict[str, int] = now) -> bool:
                found = await leases(registry, prefix)
                return set(found) == set(before) and not set(found.values()) & set(lost.values())

            await eventually(is_back, 15)
        told = await asyncio.gather(*streams)
    assert [one.failure for one in told] == [""] * NUM_STREAMS
    assert {one.text for one in told} == {reference}
    assert mesh.replicas() == processes, "nobody was restarted for it"
    await Bill(mesh).until_equal(told)


async def test_deleted_entries_of_living_replicas_come_back(mesh: Mesh, registry: EtcdClient) -> None:
    before = await leases(registry, keyspace.replicas(MODEL))
    for key in before:
        await registry.delete(key)

    async def is_back() -> bool:
        return set(await leases(registry, keyspace.replicas(MODEL))) == set(before)

    await eventually(is_back, 15)


@pytest.mark.parametrize("name", ["router", "gateway", "node"])
async def test_watcher_that_slept_through_a_compaction_catches_up(mesh: Mesh, registry: EtcdClient, name: str) -> None:
    """While it sleeps the registry changes a lot and forgets how; awake, it works on without a restart.

    It sleeps shorter than the supervisor is patient: the changes are made at the same time.
    """
    sleeper = mesh.child(name).identity
    assert sleeper is not None
    sleeper.signal(signal.SIGSTOP)
    try:
        changes = (registry.put(f"{keyspace.ROOT}noise/{number % 3}", b"{}") for number in range(200))
        await registry.compact(max(await asyncio.gather(*changes)))
    finally:
        sleeper.signal(signal.SIGCONT)
    await registry.delete(f"{keyspace.ROOT}noise/", prefix=True)
    async with Clients(mesh) as clients:
        await eventually(lambda: answers(clients), 20)
    assert mesh.child(name).identity == sleeper


async def test_dead_replica_does_not_live_on_in_a_registry_that_restarts(mesh: Mesh, registry: EtcdClient) -> None:
    """Each restart gives every lease its whole time again: the connection to the replica is what tells, not its entry."""
    async with Clients(mesh) as clients:
        reference = (await clients.ask_whole("hi", 20)).text
        slot, dead = sorted(mesh.replicas().items())[0]
        dead.signal(signal.SIGKILL)
        told = []
        for _ in range(2):
            await mesh.until_ready("etcd", mesh.kill("etcd"))
            told += await asyncio.gather(*(clients.surfaces[number % 3]("hi", 20) for number in range(6)))
    assert [one.failure for one in told if one.failure] == []
    assert {one.text for one in told} == {reference}
    await eventually(lambda: mesh.replicas().get(slot) not in (None, dead))
    await Bill(mesh).until_equal(told)


async def answers(clients: Clients) -> bool:
    return not (await clients.ask_whole("hi", 1)).failure


async def test_registry_that_falls_silent_makes_nobody_a_stranger(mesh: Mesh, registry: EtcdClient) -> None:
    """Frozen, not dead: connections stay open and nothing answers."""
    etcd = mesh.child("etcd").identity
    assert etcd is not None
    etcd.signal(signal.SIGSTOP)
    try:
        async with Rest(mesh) as rest:
            statuses = [(await rest.chat(max_tokens=20)).status_code for _ in range(8)]
    finally:
        etcd.signal(signal.SIGCONT)
    assert statuses == [200] * 8
