"""The alarm rings when its time has come, and not for a time that was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.router.alarm import LoopAlarm


class Bell:
    def __init__(self) -> None:
        self.alarm, self.rung_at = LoopAlarm(), asyncio.Queue[float]()

    def ring(self) -> None:
        self.rung_at.put_nowait(asyncio.get_running_loop().time())

    async def next_ring(self) -> float:
        return await asyncio.wait_for(self.rung_at.get(), 10)


@pytest.fixture
async def bell() -> AsyncIterator[Bell]:
    bell = Bell()
    task = asyncio.create_task(bell.alarm.run(bell.ring))
    yield bell
    task.cancel()
    await asyncio.wait({task})


async def test_alarm_rings_at_its_time(bell: Bell) -> None:
    when = asyncio.get_running_loop().time() + 0.02
    bell.alarm.set(when)
    assert await bell.next_ring() >= when


async def test_alarm_past_time_rings_at_once(bell: Bell) -> None:
    bell.alarm.set(asyncio.get_running_loop().time() - 1)
    await bell.next_ring()


async def test_alarm_set_earlier_rings_earlier_and_once(bell: Bell) -> None:
    now = asyncio.get_running_loop().time()
    bell.alarm.set(now + 3600)
    await asyncio.sleep(0)
    bell.alarm.set(now + 0.01)
    assert await bell.next_ring() < now + 3600
    assert bell.rung_at.empty()


async def test_alarm_switched_off_does_not_ring(bell: Bell) -> None:
    now = asyncio.get_running_loop().time()
    bell.alarm.set(now + 0.01)
    await asyncio.sleep(0)
    bell.alarm.set(None)
    passed = asyncio.Event()
    asyncio.get_running_loop().call_at(now + 0.02, passed.set)
    await asyncio.wait_for(passed.wait(), 10)
    assert bell.rung_at.empty()


async def test_alarm_may_be_set_again_while_it_rings(bell: Bell) -> None:
    loop = asyncio.get_running_loop()
    rung: list[float] = []

    def ring() -> None:
        rung.append(loop.time())
        alarm.set(loop.time() if len(rung) < 3 else None)
        if len(rung) == 3:
            done.set()

    alarm, done = LoopAlarm(), asyncio.Event()
    task = asyncio.create_task(alarm.run(ring))
    alarm.set(loop.time())
    await asyncio.wait_for(done.wait(), 10)
    task.cancel()
    await asyncio.wait({task})
    assert len(rung) == 3
