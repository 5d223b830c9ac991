"""Whether a process still lives, for tests that kill some."""

import asyncio
from pathlib import Path


def is_alive(pid: int) -> bool:
    """False for a zombie too: it only waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def until_gone(pid: int, timeout_s: float = 20.0) -> None:
    """Polls: the end of a process that is not our child tells nobody."""
    async with asyncio.timeout(timeout_s):
        alive = is_alive(pid)
        while alive:
            await asyncio.sleep(0.02)
            alive = is_alive(pid)
