"""Waiting for a state that announces itself by no event: of another process, of the operating system, of a counter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_POLL_S = 0.01


async def eventually(condition: Callable[[], bool | Awaitable[bool]], timeout_s: float = 30.0) -> None:
    """Returns as soon as the condition holds; TimeoutError when it does not within the time."""
    async with asyncio.timeout(timeout_s):
        while True:
            outcome = condition()
            if outcome is True or (not isinstance(outcome, bool) and await outcome):
                return
            await asyncio.sleep(_POLL_S)
