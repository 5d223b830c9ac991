"""Leases against a real server: one stream for all, an own deadline, and what a restart does to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.kit.etcd import EtcdClient, LeaseKeeper, LeaseNotFound
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually


@pytest.fixture
async def keeper(client: EtcdClient) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(client)
    running = asyncio.ensure_future(keeper.run())
    yield keeper
    running.cancel()
    await asyncio.wait({running})


async def test_leases_kept_alive_outlive_their_ttl_and_end_when_forgotten(client: EtcdClient, keeper: LeaseKeeper) -> None:
    kept = [await keeper.grant(1) for _ in range(50)]
    dropped = await keeper.grant(1)
    for lease in kept:
        await client.put(f"/kept/{lease.id}", b"", lease.id)
    start = await client.put("/dropped", b"", dropped.id)
    keeper.forget(dropped)

    async with asyncio.timeout(20), client.watch("/dropped", start_revision=start + 1) as watch:
        assert (await anext(watch))[0].deleted  # etcd has ended a lease of the same age: the others were kept alive.
        assert len((await client.get_prefix("/kept/")).kvs) == 50
    assert not any(lease.lost.is_set() for lease in kept)


async def test_lease_revoked_elsewhere_is_lost_and_said_once(client: EtcdClient, keeper: LeaseKeeper) -> None:
    """Rule 6: a TTL of 0 or less in the answer means that the lease is gone."""
    reasons: list[str] = []
    lease = await keeper.grant(2, on_lost=reasons.append)
    await client.revoke(lease.id)

    async with asyncio.timeout(10):
        await lease.lost.wait()
    assert reasons == ["etcd does not know the lease any more"]
    with pytest.raises(LeaseNotFound):
        await keeper.revoke(lease)


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_lease_without_answers_is_lost_by_its_own_deadline(etcd: EtcdServer, keeper: LeaseKeeper, fault: str) -> None:
    """Rule 6: dead or stopped, the owner must know within one TTL of the last answer, before etcd may give the key away."""
    reasons: list[str] = []
    lease = await keeper.grant(3, on_lost=reasons.append)
    getattr(etcd, fault)()
    try:
        async with asyncio.timeout(10):
            await lease.lost.wait()
    finally:
        if fault == "pause":
            etcd.resume()
    assert reasons == ["no answer from etcd for a whole TTL"]


async def test_lease_survives_a_restart_shorter_than_its_ttl(etcd: EtcdServer, client: EtcdClient, keeper: LeaseKeeper) -> None:
    lease = await keeper.grant(10)
    await client.put("/k", b"v", lease.id)
    etcd.kill()
    await etcd.start()
    asked = lease.next_ask_at

    await eventually(lambda: lease.asked_at is None and lease.next_ask_at > asked)  # A keep-alive after the restart was answered.
    found = await client.get("/k")
    assert found is not None and not lease.lost.is_set()


async def test_key_of_dead_owner_stays_one_ttl_after_a_restart_and_then_goes(etcd: EtcdServer, client: EtcdClient) -> None:
    """Rule 7: a restart gives every lease its full TTL again, so the registry may list a dead owner for that long and no longer."""
    lease = await client.grant(2)
    start = await client.put("/dead", b"v", lease)
    etcd.kill()
    await etcd.start()

    assert await client.get("/dead") is not None
    async with asyncio.timeout(15), client.watch("/dead", start_revision=start + 1) as watch:
        assert (await anext(watch))[0].deleted
