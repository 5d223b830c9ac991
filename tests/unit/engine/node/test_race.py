"""Waiting for the first of two."""

import asyncio

import pytest

from services.engine.node.race import first_of


class Stuck:
    """Waits for ever and remembers that it was cancelled."""

    cancelled = False

    async def wait(self) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "never"


async def quick() -> str:
    return "quick"


async def failing() -> str:
    raise ValueError("bad")


async def test_race_loser_is_cancelled() -> None:
    stuck = Stuck()
    assert await first_of(quick(), stuck.wait()) == ("quick", None)
    assert await first_of(stuck.wait(), quick()) == (None, "quick")
    assert stuck.cancelled


async def test_race_both_finished_both_are_told() -> None:
    assert await first_of(quick(), quick()) == ("quick", "quick")


async def test_race_error_is_raised_and_the_other_is_cancelled() -> None:
    stuck = Stuck()
    with pytest.raises(ValueError, match="bad"):
        await first_of(stuck.wait(), failing())
    assert stuck.cancelled


async def test_race_cancelled_itself_cancels_both() -> None:
    one, other = Stuck(), Stuck()
    task = asyncio.ensure_future(first_of(one.wait(), other.wait()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() and one.cancelled and other.cancelled
