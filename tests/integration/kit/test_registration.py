"""Registration against a real server: the key is there for as long as its owner is, whatever happens to lease, key or etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from google.protobuf import json_format

from inferway.common.v1 import registry_pb2
from services.kit.etcd import EtcdClient, KeyValue, LeaseKeeper
from services.kit.registration import Registration
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually

Tenant = registry_pb2.Tenant
KEY = "/inferway/v1/replicas/m/r1"
StartRegistration = Callable[[str], tuple[Registration, asyncio.Future[None]]]


@pytest.fixture
async def register(connect: Callable[[], EtcdClient]) -> AsyncIterator[StartRegistration]:
    running: list[asyncio.Future[None]] = []

    def start(name: str) -> tuple[Registration, asyncio.Future[None]]:
        client = connect()
        keeper = LeaseKeeper(client)
        registration = Registration(client, keeper, KEY, Tenant(display_name=name), ttl_s=2)
        running.append(asyncio.ensure_future(keeper.run()))
        running.append(asyncio.ensure_future(registration.run()))
        return registration, running[-1]

    yield start
    for task in running:
        task.cancel()
    await asyncio.wait(running)


def _name(kv: KeyValue | None) -> str:
    return json_format.Parse(kv.value, Tenant()).display_name if kv else ""


async def _wait_for(client: EtcdClient, condition: Callable[[KeyValue | None], bool]) -> KeyValue | None:
    async def holds() -> bool:
        return condition(await client.get(KEY))

    await eventually(holds)
    return await client.get(KEY)


async def test_registration_writes_updates_and_removes_its_key(client: EtcdClient, register: StartRegistration) -> None:
    registration, running = register("one")
    async with asyncio.timeout(10):
        await registration.wait_registered()
        first = await client.get(KEY)
        registration.update(Tenant(display_name="two"))
        assert not registration.registered
        await registration.wait_registered()
        second = await client.get(KEY)
        running.cancel()
        await asyncio.wait({running})
        assert await client.get(KEY) is None

    assert (_name(first), _name(second)) == ("one", "two")
    assert first is not None and second is not None and first.lease == second.lease


async def test_registration_with_lease_revoked_fifty_times_is_back_each_time_and_never_twice(
    client: EtcdClient, register: StartRegistration
) -> None:
    """RG-03: a lost lease is replaced, not retried, within one TTL."""
    registration, _ = register("one")
    leases = set()
    async with asyncio.timeout(55):
        for _round in range(50):
            found = await _wait_for(client, lambda kv: kv is not None)
            assert found is not None and found.lease not in leases
            assert len((await client.get_prefix("/inferway/v1/replicas/")).kvs) == 1
            leases.add(found.lease)
            await client.revoke(found.lease)
        await _wait_for(client, lambda kv: kv is not None)
        await registration.wait_registered()


async def test_registration_with_key_deleted_puts_it_back(client: EtcdClient, register: StartRegistration) -> None:
    registration, _ = register("one")
    async with asyncio.timeout(10):
        await registration.wait_registered()
        await client.delete(KEY)
        await _wait_for(client, lambda kv: kv is not None)


async def test_registration_survives_an_outage_longer_than_its_ttl(
    etcd: EtcdServer, client: EtcdClient, register: StartRegistration
) -> None:
    registration, running = register("one")
    async with asyncio.timeout(40):
        await registration.wait_registered()
        etcd.kill()
        await eventually(lambda: not registration.registered)  # The own deadline of the lease has passed.
        registration.update(Tenant(display_name="two"))
        await etcd.start()
        await registration.wait_registered()
        assert _name(await client.get(KEY)) == "two"
    assert not running.done()


async def test_registration_takes_over_the_entry_of_its_earlier_self(client: EtcdClient, register: StartRegistration) -> None:
    """A process that restarts within the TTL finds its old key; the old lease must not take the new entry along."""
    old_lease = await client.grant(1)
    await client.put(KEY, b"{}", old_lease)
    registration, _ = register("new")
    async with asyncio.timeout(15):
        await registration.wait_registered()
        await client.revoke(old_lease)
        assert _name(await client.get(KEY)) == "new"


async def test_registration_replaced_by_another_owner_waits_for_the_key(client: EtcdClient, register: StartRegistration) -> None:
    """Two owners of one key must not take it from each other for ever."""
    first, _ = register("first")
    async with asyncio.timeout(20):
        await first.wait_registered()
        second, second_running = register("second")
        await _wait_for(client, lambda kv: _name(kv) == "second")
        written = await _wait_for(client, lambda kv: kv is not None)
        first.update(Tenant(display_name="first again"))
        second_running.cancel()
        await asyncio.wait({second_running})
        after = await _wait_for(client, lambda kv: _name(kv) == "first again")
    assert written is not None and after is not None and after.create_revision > written.create_revision
    assert second is not first


async def test_registration_closed_while_etcd_is_away_ends_soon(etcd: EtcdServer, register: StartRegistration) -> None:
    registration, running = register("one")
    async with asyncio.timeout(10):
        await registration.wait_registered()
        etcd.kill()
        running.cancel()
        await asyncio.wait({running})
