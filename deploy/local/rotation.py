"""Keeps each child's log below a bound: copies it aside and truncates it, which is safe because every writer appends."""

import shutil
from pathlib import Path

MAX_BYTES = 16 * 1024 * 1024
NUM_KEPT = 2


def rotate(log: Path, max_bytes: int = MAX_BYTES) -> bool:
    """Move the content to `<log>.1` (and older to `.2`) when it exceeds `max_bytes`. Lines written during the copy may be lost."""
    try:
        if log.stat().st_size <= max_bytes:
            return False
    except FileNotFoundError:
        return False
    for index in range(NUM_KEPT, 1, -1):
        older = _kept(log, index - 1)
        if older.exists():
            older.replace(_kept(log, index))
    shutil.copyfile(log, _kept(log, 1))
    with log.open("r+b") as file:
        file.truncate(0)
    return True


def last_line(log: Path, max_bytes: int = 4096) -> str:
    """The last non-empty line of a log, for a one-line explanation of a death; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - max_bytes))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _kept(log: Path, index: int) -> Path:
    return log.with_name(f"{log.name}.{index}")
