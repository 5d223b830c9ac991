"""The watch against a real server: nothing lost, nothing twice, through kill -9 and compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from services.kit.etcd import Compacted, EtcdClient, EtcdUnavailable, Event, txn
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually


async def _collect(client: EtcdClient, start_revision: int, last_value: bytes, seen: list[Event]) -> None:
    async with client.watch("/w/", prefix=True, start_revision=start_revision) as watch:
        async for events in watch:
            seen += events
            if events[-1].kv.value == last_value:
                return


async def test_watch_killed_in_mid_replay_loses_and_repeats_nothing(etcd: EtcdServer, client: EtcdClient) -> None:
    """Rule 1: the header of a catch-up response is far ahead of its events, and must not decide where to resume."""
    total = 3000
    first = (await client.status()).revision + 1
    for start in range(0, total, 100):
        puts = [client.put(f"/w/{number:05}", str(number).encode()) for number in range(start, start + 100)]
        await asyncio.gather(*puts)
    seen: list[Event] = []

    async with asyncio.timeout(40), client.watch("/w/", prefix=True, start_revision=first) as watch:
        seen += await anext(watch)
        assert len(seen) < total
        etcd.kill()
        await etcd.start()
        while len(seen) < total:
            seen += await anext(watch)

    revisions = [event.kv.mod_revision for event in seen]
    assert revisions == list(range(first, first + total))


async def test_watch_with_writer_through_kill_delivers_every_acknowledged_write_once(
    etcd: EtcdServer, connect: Callable[[], EtcdClient]
) -> None:
    writer, reader = connect(), connect()
    first = (await writer.status()).revision + 1
    acknowledged: list[int] = []
    seen: list[Event] = []

    async def write() -> None:
        for number in range(200):
            try:
                acknowledged.append((await writer.txn([txn.absent(f"/w/{number}")], [txn.put(f"/w/{number}", b"v")])).revision)
            except EtcdUnavailable:
                await asyncio.sleep(0.05)
        while True:
            try:
                await writer.put("/w/end", b"end")
                return
            except EtcdUnavailable:
                await asyncio.sleep(0.05)

    async def restart() -> None:
        await eventually(lambda: len(acknowledged) >= 50)
        etcd.kill()
        await etcd.start()

    async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
        tasks.create_task(_collect(reader, first, b"end", seen))
        tasks.create_task(write())
        tasks.create_task(restart())

    revisions = [event.kv.mod_revision for event in seen]
    assert set(acknowledged) <= set(revisions)
    assert revisions == sorted(set(revisions))


async def test_watch_from_compacted_revision_raises_compacted(client: EtcdClient) -> None:
    """Rule 2: the caller lists again; a watch that hangs or ends in silence would not tell it to."""
    first = await client.put("/w/a", b"1")
    for _ in range(5):
        newest = await client.put("/w/a", b"2")
    await client.compact(newest)

    async with asyncio.timeout(10), client.watch("/w/", prefix=True, start_revision=first) as watch:
        with pytest.raises(Compacted) as caught:
            await anext(watch)
    assert caught.value.revision == newest


async def test_watch_of_a_store_younger_than_what_was_seen_raises_compacted(client: EtcdClient) -> None:
    async with asyncio.timeout(10), client.watch("/w/", prefix=True, start_revision=1_000_000) as watch:
        with pytest.raises(Compacted, match="behind"):
            await anext(watch)


async def test_watch_tells_when_it_is_not_live(etcd: EtcdServer, client: EtcdClient) -> None:
    async with asyncio.timeout(20), client.watch("/w/", prefix=True) as watch:
        while not watch.live:
            await watch.poll()
        etcd.kill()
        await watch.poll()
        assert not watch.live and watch.last_error is not None
        await etcd.start()
        while not watch.live:
            await watch.poll()
        assert watch.last_error is None


async def test_watch_cancelled_and_read_again_delivers_what_was_missed(client: EtcdClient) -> None:
    first = await client.put("/w/a", b"1")
    async with asyncio.timeout(10), client.watch("/w/", prefix=True, start_revision=first) as watch:
        assert len(await anext(watch)) == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.poll(), 0.05)
        await client.put("/w/b", b"2")
        assert [event.kv.key for event in await anext(watch)] == ["/w/b"]


async def test_watch_cancelled_leaves_no_pending_task_behind(etcd: EtcdServer, client: EtcdClient) -> None:
    """Rule 5: a cancelled request generator would be reported to the loop as a destroyed pending task."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    before = len(asyncio.all_tasks())
    for _ in range(5):
        async with client.watch("/w/", prefix=True) as watch:
            while not watch.live:
                await watch.poll()
            waiting = asyncio.ensure_future(watch.poll())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
    await eventually(lambda: len(asyncio.all_tasks()) <= before)

    assert reported == []
