"""Watchers of the prefix cache: what they are told, by number, and that nobody waits for them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.engine.kv_events import Cleared, KvEvent, Removed, Stored
from services.engine.kv_feed import KvFeed, KvMessage

BASE = 1000


@pytest.fixture
def feed() -> KvFeed:
    """Keeps three messages."""
    return KvFeed(BASE, max_kept=3)


async def next_of(watch: AsyncIterator[KvMessage]) -> KvMessage:
    async with asyncio.timeout(10):
        return await anext(watch)


def cached(events: list[KvEvent]) -> dict[bytes, bytes]:
    """What a watcher believes to be cached after these events: parents by hash."""
    parents: dict[bytes, bytes] = {}
    for event in events:
        match event:
            case Cleared():
                parents.clear()
            case Stored(parent, hashes):
                assert not parent or parent in parents
                parents.update(zip(hashes, (parent, *hashes), strict=False))
            case Removed(hashes):
                for block_hash in hashes:
                    del parents[block_hash]
    return parents


async def test_watch_from_zero_gets_a_snapshot_then_changes(feed: KvFeed) -> None:
    feed.take([Stored(b"", (b"a", b"b"))])
    feed.take([Stored(b"a", (b"c",)), Stored(b"", (b"d",))])
    watch = feed.watch(0)
    first = await next_of(watch)
    assert (first.sequence_number, first.events[0]) == (BASE + 2, Cleared())
    assert cached(list(first.events)) == {b"a": b"", b"b": b"a", b"c": b"a", b"d": b""}
    feed.take([Removed((b"b",))])
    assert await next_of(watch) == KvMessage(BASE + 3, [Removed((b"b",))])


async def test_watch_of_an_empty_cache_begins_with_cleared(feed: KvFeed) -> None:
    assert await next_of(feed.watch(0)) == KvMessage(BASE, [Cleared()])


async def test_watch_goes_on_after_the_last_number_without_a_snapshot(feed: KvFeed) -> None:
    feed.take([Stored(b"", (b"a",))])
    feed.take([Removed((b"a",))])
    watch = feed.watch(BASE + 2)
    assert (await next_of(watch)).sequence_number == BASE + 2
    feed.take([Stored(b"", (b"z",))])
    assert await next_of(watch) == KvMessage(BASE + 3, [Stored(b"", (b"z",))])


@pytest.mark.parametrize("start", [1, BASE, BASE + 2, BASE + 7], ids=["earlier life", "base", "not kept any more", "not there yet"])
async def test_watch_from_a_number_that_is_not_there_gets_a_snapshot(feed: KvFeed, start: int) -> None:
    for name in (b"a", b"b", b"c", b"d", b"e"):
        feed.take([Stored(b"", (name,))])
    message = await next_of(feed.watch(start))
    assert message.sequence_number == BASE + 5
    assert cached(list(message.events)) == dict.fromkeys((b"a", b"b", b"c", b"d", b"e"), b"")


async def test_watcher_that_falls_behind_gets_a_snapshot_and_ends_up_right(feed: KvFeed) -> None:
    watch = feed.watch(0)
    heard = list((await next_of(watch)).events)
    for name in (b"a", b"b", b"c", b"d"):
        feed.take([Stored(b"", (name,))])
        feed.take([Removed((name,))] if name != b"d" else [])
    message = await next_of(watch)
    assert message.events[0] == Cleared()
    assert cached([*heard, *message.events]) == {b"d": b""}
    feed.take([Stored(b"d", (b"e",))])
    assert (await next_of(watch)).sequence_number == message.sequence_number + 1


async def test_two_watchers_hear_the_same(feed: KvFeed) -> None:
    watches = [feed.watch(0), feed.watch(0)]
    for watch in watches:
        await next_of(watch)
    waiting = [asyncio.ensure_future(next_of(watch)) for watch in watches]
    await asyncio.sleep(0)
    feed.take([Stored(b"", (b"a",))])
    assert await asyncio.gather(*waiting) == [KvMessage(BASE + 1, [Stored(b"", (b"a",))])] * 2


async def test_no_changes_are_no_message(feed: KvFeed) -> None:
    feed.take([])
    assert (await next_of(feed.watch(0))).sequence_number == BASE


async def test_close_ends_watches(feed: KvFeed) -> None:
    watch = feed.watch(0)
    await next_of(watch)
    waiting = asyncio.ensure_future(anext(watch, None))
    await asyncio.sleep(0)
    feed.close()
    assert await waiting is None
