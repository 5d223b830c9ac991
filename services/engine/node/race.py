"""Waits for the first of several things and stops waiting for the others."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def first_of(one: Coroutine[None, None, A], other: Coroutine[None, None, B]) -> tuple[A | None, B | None]:
    """The results of those that have finished once one has, None for one that was cancelled. An exception of either is raised."""
    first, second = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (first, second):
            task.cancel()
        await asyncio.wait({first, second})
    return _result(first), _result(second)


def _result(task: "asyncio.Task[A]") -> A | None:
    return None if task.cancelled() else task.result()
