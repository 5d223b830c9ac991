"""Election against a real server: one leader, hand-over, and a fencing token that stops a late write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from services.kit.etcd import Election, EtcdClient, LeaseKeeper, Watch, txn
from tests.harness.etcd import EtcdServer


@pytest.fixture
async def candidate(connect: Callable[[], EtcdClient]) -> AsyncIterator[Callable[[str], Election]]:
    running: list[asyncio.Future[None]] = []

    def make(name: str) -> Election:
        client = connect()
        keeper = LeaseKeeper(client)
        running.append(asyncio.ensure_future(keeper.run()))
        return Election(client, keeper, "/leader/test", name, ttl_s=2)

    yield make
    for keeping in running:
        keeping.cancel()
    await asyncio.wait(running)


async def test_election_second_candidate_leads_only_after_the_first_resigned(candidate: Callable[[str], Election]) -> None:
    async with asyncio.timeout(20):
        first = await candidate("one").campaign()
        waiting = asyncio.ensure_future(candidate("two").campaign())
        with pytest.raises(TimeoutError):  # The lease of the first is kept alive for longer than its TTL.
            await asyncio.wait_for(asyncio.shield(waiting), 3)
        await first.resign()
        second = await waiting

    assert second.token > first.token


async def test_election_paused_leader_is_fenced_off(etcd: EtcdServer, client: EtcdClient, candidate: Callable[[str], Election]) -> None:
    """Rule 9: the old leader's write carries its own token and is refused, whatever it believes about its lease."""
    async with asyncio.timeout(20):
        old = await candidate("one").campaign()
        await client.delete("/leader/test")
        new = await candidate("two").campaign()
        late = await client.txn([old.guard()], [txn.put("/state", b"old")])
        current = await client.txn([new.guard()], [txn.put("/state", b"new")])

    assert not late.succeeded and current.succeeded
    assert new.token > old.token


async def test_election_leader_learns_of_its_loss_while_etcd_is_away(etcd: EtcdServer, candidate: Callable[[str], Election]) -> None:
    async with asyncio.timeout(30):
        leadership = await candidate("one").campaign()
        etcd.kill()
        await leadership.lost.wait()
        await etcd.start()
        again = await candidate("two").campaign()
    assert again.token > leadership.token


async def test_election_campaign_outlives_an_outage(etcd: EtcdServer, candidate: Callable[[str], Election]) -> None:
    etcd.kill()
    waiting = asyncio.ensure_future(candidate("one").campaign())
    await etcd.start()
    async with asyncio.timeout(20):
        assert (await waiting).token > 0


async def test_election_candidate_waits_also_for_a_leader_from_before_the_history_that_is_kept(
    client: EtcdClient, candidate: Callable[[str], Election], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch from the leader's own revision would be refused at once, and asked for again twice a second for as long as it leads."""
    from_revisions: asyncio.Queue[int] = asyncio.Queue()
    usual = EtcdClient.watch

    def watch(self: EtcdClient, key: str, *, prefix: bool = False, start_revision: int = 0) -> Watch:
        from_revisions.put_nowait(start_revision)
        return usual(self, key, prefix=prefix, start_revision=start_revision)

    monkeypatch.setattr(EtcdClient, "watch", watch)
    async with asyncio.timeout(20):
        first = await candidate("one").campaign()
        for _ in range(3):
            compacted = await client.put("/something-else", b"x")
        await client.compact(compacted)
        waiting = asyncio.ensure_future(candidate("two").campaign())
        assert await from_revisions.get() > compacted
        await first.resign()
        await waiting
