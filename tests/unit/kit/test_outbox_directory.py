"""The outbox directory: one file per living process, and the files of the dead are found again, kill -9 included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.kit.outbox_directory import OutboxDirectory

_WRITER = """
import asyncio, sys
from pathlib import Path
from services.kit.outbox_directory import OutboxDirectory

async def main():
    outbox = OutboxDirectory(Path(sys.argv[1]), max_bytes=10_000_000).open_own()
    print(outbox.producer_id, flush=True)
    while True:
        sequences = await asyncio.gather(*(outbox.append("t", b"k", lambda p, s: f"{p}/{s}".encode()) for _ in range(5)))
        print(*sequences, flush=True)

asyncio.run(main())
"""


class Writer:
    """A process that appends for ever and prints each number once it is acknowledged."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", _WRITER, str(directory)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._lines = self._process.stdout
        self.producer_id = self._lines.readline().strip()

    def kill_after(self, num_lines: int) -> int:
        """kill -9 after so many acknowledgements; returns the highest number that was acknowledged."""
        acknowledged = [self._lines.readline() for _ in range(num_lines)]
        self.stop()
        acknowledged += self._lines.readlines()
        return max(int(number) for line in acknowledged if line.endswith("\n") for number in line.split())

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.stop()
        self._lines.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    started = Writer(tmp_path)
    yield started
    started.close()


async def test_open_own_after_kill_9_holds_every_acknowledged_record(tmp_path: Path, writer: Writer) -> None:
    acknowledged = writer.kill_after(40)
    outbox = OutboxDirectory(tmp_path, max_bytes=10_000_000).open_own()
    try:
        rows = await outbox.read(0, 100_000)
    finally:
        await outbox.close()

    assert outbox.producer_id == writer.producer_id
    assert acknowledged >= 200 and len(rows) >= acknowledged
    assert [row.value.decode() for row in rows] == [f"{writer.producer_id}/{number}" for number in range(1, len(rows) + 1)]


async def test_adopt_takes_the_records_of_the_dead_and_leaves_the_living_alone(tmp_path: Path, writer: Writer) -> None:
    directory = OutboxDirectory(tmp_path, max_bytes=10_000_000)
    own = directory.open_own()
    try:
        assert own.producer_id != writer.producer_id
        assert await directory.adopt() == []
        writer.kill_after(1)
        adopted = await directory.adopt()
        assert [outbox.producer_id for outbox in adopted] == [writer.producer_id]
        assert await directory.adopt() == []  # It is owned now.
        await adopted[0].trim(adopted[0].last_sequence)
        await adopted[0].close()
        assert await directory.adopt() == []  # It is free, and holds nothing.
    finally:
        await own.close()


async def test_open_own_reuses_a_free_file_instead_of_making_ever_more(tmp_path: Path) -> None:
    directory = OutboxDirectory(tmp_path, max_bytes=1000)
    first = directory.open_own()
    await first.close()
    second = directory.open_own()
    await second.close()
    assert first.producer_id == second.producer_id
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".sqlite")]) == 1


async def test_a_file_that_is_no_outbox_is_left_alone_and_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a broken disk left behind must neither keep a process from starting nor end one that runs."""
    broken = tmp_path / "0.sqlite"
    broken.write_bytes(b"no database" * 1000)
    directory = OutboxDirectory(tmp_path, max_bytes=1000)
    own = directory.open_own()
    try:
        assert await own.append("t", b"k", lambda _producer, _sequence: b"v") == 1
        assert await directory.adopt() == []
    finally:
        await own.close()
    assert broken.read_bytes() == b"no database" * 1000
    assert "an outbox file cannot be read" in caplog.text
