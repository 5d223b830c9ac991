"""The outbox: durable, numbered without gaps, bounded, owned by one process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.kit.errors import InvalidArgument
from services.kit.outbox import Outbox, OutboxFull, OutboxLocked, OutboxUnavailable


def _numbered(producer_id: str, sequence: int) -> bytes:
    return f"{producer_id}/{sequence}".encode()


def _sized(num_bytes: int) -> Callable[[str, int], bytes]:
    return lambda _producer, _sequence: b"x" * num_bytes


@pytest.fixture
async def outbox(tmp_path: Path) -> AsyncIterator[Outbox]:
    opened = Outbox.open(tmp_path / "own.sqlite", max_bytes=100_000)
    yield opened
    await opened.close()


async def test_append_many_at_once_numbers_them_in_order_without_gaps(outbox: Outbox) -> None:
    sequences = await asyncio.gather(*(outbox.append("topic", b"tenant", _numbered) for _ in range(500)))
    rows = await outbox.read(0, 1000)

    assert sequences == list(range(1, 501))
    assert [row.value for row in rows] == [_numbered(outbox.producer_id, number) for number in sequences]
    assert (rows[0].topic, rows[0].key) == ("topic", b"tenant")
    assert outbox.num_rows == 500 and outbox.last_sequence == 500 and outbox.oldest_unix_ms == rows[0].created_unix_ms


async def test_append_whose_value_cannot_be_made_uses_up_no_number(outbox: Outbox) -> None:
    def broken(_producer: str, _sequence: int) -> bytes:
        raise KeyError("no such field")

    outcomes = await asyncio.gather(
        outbox.append("t", b"k", _numbered),
        outbox.append("t", b"k", broken),
        outbox.append("t", b"k", _numbered),
        return_exceptions=True,
    )
    assert outcomes[0] == 1 and isinstance(outcomes[1], KeyError) and outcomes[2] == 2


async def test_append_beyond_the_bound_is_refused_until_trimmed(outbox: Outbox) -> None:
    for _ in range(9):
        await outbox.append("t", b"", _sized(10_000))
    outbox_is_nearly_full = outbox.num_bytes
    with pytest.raises(OutboxFull):
        outbox.require_room()
    with pytest.raises(OutboxFull) as caught:
        await outbox.append("t", b"", _sized(10_000))
    small = await outbox.append("t", b"", _sized(10))  # The headroom is for the records of work that was accepted before.

    assert caught.value.code == "RESOURCE_EXHAUSTED" and caught.value.reason == "OUTBOX_FULL"
    assert small == 10 and outbox_is_nearly_full > 90_000
    assert await outbox.trim(5) == 5
    outbox.require_room()
    assert await outbox.append("t", b"", _sized(10_000)) == 11


async def test_read_after_a_number_returns_the_next_rows_in_order(outbox: Outbox) -> None:
    for _ in range(10):
        await outbox.append("t", b"k", _numbered)
    assert [row.sequence for row in await outbox.read(4, 3)] == [5, 6, 7]
    assert await outbox.read(10, 3) == []


async def test_trim_empties_and_counts_exactly(outbox: Outbox) -> None:
    for _ in range(3):
        await outbox.append("t", b"k", _numbered)
    emptied = asyncio.ensure_future(outbox.wait_empty())
    assert await outbox.trim(2) == 2
    assert not emptied.done()
    assert await outbox.trim(2) == 0
    assert await outbox.trim(3) == 1
    async with asyncio.timeout(5):
        await emptied
    assert (outbox.num_rows, outbox.num_bytes, outbox.oldest_unix_ms, outbox.last_sequence) == (0, 0, 0, 3)


async def test_outbox_opened_again_goes_on_with_the_same_identity_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "own.sqlite"
    first = Outbox.open(path, max_bytes=100_000)
    for _ in range(3):
        await first.append("t", b"k", _numbered)
    await first.trim(3)
    last = asyncio.ensure_future(first.append("t", b"k", _numbered))
    await asyncio.sleep(0)
    await first.close()
    second = Outbox.open(path, max_bytes=100_000)
    try:
        assert await last == 4
        assert second.producer_id == first.producer_id
        assert (second.num_rows, second.last_sequence) == (1, 4)
        assert await second.append("t", b"k", _numbered) == 5
        assert second.num_bytes == sum(64 + 1 + len(row.value) for row in await second.read(0, 10))
    finally:
        await second.close()


async def test_outbox_file_owned_by_another_is_refused_and_free_after_close(tmp_path: Path) -> None:
    first = Outbox.open(tmp_path / "own.sqlite", max_bytes=1000)
    with pytest.raises(OutboxLocked):
        Outbox.open(tmp_path / "own.sqlite", max_bytes=1000)
    await first.close()
    await Outbox.open(tmp_path / "own.sqlite", max_bytes=1000).close()


async def test_append_that_the_disk_refuses_raises_and_the_writer_goes_on(outbox: Outbox, tmp_path: Path) -> None:
    await outbox.append("t", b"k", _numbered)
    other = sqlite3.connect(tmp_path / "own.sqlite", isolation_level=None)
    other.execute("CREATE TRIGGER refuse BEFORE INSERT ON rows BEGIN SELECT RAISE(ABORT, 'no space'); END")
    with pytest.raises(OutboxUnavailable):
        await outbox.append("t", b"k", _numbered)
    other.execute("DROP TRIGGER refuse")
    other.close()

    assert await outbox.append("t", b"k", _numbered) == 2
    assert outbox.num_rows == 2


async def test_require_room_takes_no_work_while_the_disk_refuses_records(outbox: Outbox, tmp_path: Path) -> None:
    """Else the work of a whole outage would be done, and given away, without a bill."""
    other = sqlite3.connect(tmp_path / "own.sqlite", isolation_level=None)
    other.execute("CREATE TRIGGER refuse BEFORE UPDATE ON identity BEGIN SELECT RAISE(ABORT, 'no space'); END")
    outbox.require_room()
    with pytest.raises(OutboxUnavailable):
        await outbox.append("t", b"k", _numbered)
    for _ in range(3):
        with pytest.raises(OutboxUnavailable):
            outbox.require_room()
        await outbox.read(0, 1)  # The trial comes before it.
    other.execute("DROP TRIGGER refuse")
    other.close()

    with pytest.raises(OutboxUnavailable):
        outbox.require_room()
    await outbox.read(0, 1)
    outbox.require_room()
    assert await outbox.append("t", b"k", _numbered) == 1


async def test_append_after_close_is_refused(tmp_path: Path) -> None:
    outbox = Outbox.open(tmp_path / "own.sqlite", max_bytes=1000)
    await outbox.close()
    with pytest.raises(OutboxUnavailable):
        await outbox.append("t", b"k", _numbered)


async def test_wait_beyond_returns_when_a_newer_record_is_durable(outbox: Outbox) -> None:
    waiting = asyncio.ensure_future(outbox.wait_beyond(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    await outbox.append("t", b"k", _numbered)
    async with asyncio.timeout(5):
        await waiting


async def test_trim_beyond_the_last_number_never_gives_those_numbers_out_again(outbox: Outbox) -> None:
    """An old copy of the file: the ledger knows numbers that the file does not, and they must not be used for other records."""
    await outbox.append("t", b"k", _numbered)
    assert await outbox.trim(10) == 1
    assert await outbox.append("t", b"k", _numbered) == 11


async def test_append_of_a_record_no_broker_would_take_is_refused(tmp_path: Path) -> None:
    outbox = Outbox.open(tmp_path / "big.sqlite", max_bytes=10_000_000)
    try:
        with pytest.raises(InvalidArgument):
            await outbox.append("t", b"k", _sized(1_000_000))
        assert await outbox.append("t", b"k", _sized(1)) == 1
    finally:
        await outbox.close()
