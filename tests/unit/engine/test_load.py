"""Watchers of the load hear of changes, not of every step, and of the end."""

import asyncio
from dataclasses import replace

from services.engine.batch_load import BatchLoad
from services.engine.load import MAX_GAP_S, LoadFeed, ReplicaLoad

IDLE = ReplicaLoad(BatchLoad(), 0, 8, 2, 0.0, False, 0, 0)


class Source:
    """A load that the test sets."""

    def __init__(self) -> None:
        self.load = IDLE

    def measure(self) -> ReplicaLoad:
        return self.load


async def test_watch_hears_a_change_long_before_the_idle_interval() -> None:
    source = Source()
    feed = LoadFeed(source.measure)
    feed.refresh()
    watch = feed.watch()
    assert await anext(watch) == IDLE
    following = asyncio.ensure_future(anext(watch))
    source.load = replace(IDLE, batch=BatchLoad(num_running=1))
    feed.refresh()
    async with asyncio.timeout(MAX_GAP_S * 0.9):
        assert (await following).batch.num_running == 1
    await watch.aclose()


async def test_watch_hears_a_change_that_came_between_two_looks() -> None:
    source = Source()
    feed = LoadFeed(source.measure)
    feed.refresh()
    watch = feed.watch()
    await anext(watch)
    source.load = replace(IDLE, draining=True)
    feed.refresh()
    async with asyncio.timeout(MAX_GAP_S * 0.9):
        assert (await anext(watch)).draining
    await watch.aclose()


async def test_refresh_without_a_change_wakes_nobody() -> None:
    source = Source()
    feed = LoadFeed(source.measure)
    feed.refresh()
    watch = feed.watch()
    await anext(watch)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    source.load = replace(IDLE, heartbeat_age_s=1.0, output_tokens_total=5)
    feed.refresh()
    assert (await anext(watch)).output_tokens_total == 5
    assert loop.time() - begin > MAX_GAP_S * 0.9
    await watch.aclose()


async def test_refresh_tells_of_blocks_when_a_hundredth_of_them_is_taken() -> None:
    source = Source()
    source.load = replace(IDLE, num_blocks=1000, batch=BatchLoad(num_running=1, num_used_blocks=100))
    feed = LoadFeed(source.measure)
    feed.refresh()
    watch = feed.watch()
    await anext(watch)
    following = asyncio.ensure_future(anext(watch))
    loop = asyncio.get_running_loop()
    begin = loop.time()
    source.load = replace(source.load, batch=BatchLoad(num_running=1, num_used_blocks=109))
    feed.refresh()
    assert (await following).batch.num_used_blocks == 109
    assert loop.time() - begin > MAX_GAP_S * 0.9

    following = asyncio.ensure_future(anext(watch))
    source.load = replace(source.load, batch=BatchLoad(num_running=1, num_used_blocks=110))
    feed.refresh()
    async with asyncio.timeout(MAX_GAP_S * 0.9):
        assert (await following).batch.num_used_blocks == 110
    await watch.aclose()


async def test_close_ends_watches() -> None:
    feed = LoadFeed(lambda: IDLE)
    watch = feed.watch()
    await anext(watch)
    feed.close()
    assert [load async for load in watch] == []
