"""The durable side of the outbox: one SQLite file, owned by one process at a time, written by one thread at a time."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.kit.errors import InvalidArgument, ResourceExhausted, Unavailable

MakeValue = Callable[[str, int], bytes]

MAX_VALUE_BYTES = 900_000  # A broker takes 1 MiB by default; a record that no broker takes would block all records behind it.

_ROW_OVERHEAD_BYTES = 64
_SCHEMA = """
CREATE TABLE IF NOT EXISTS identity (producer_id TEXT NOT NULL, last_sequence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rows (
    sequence INTEGER PRIMARY KEY, topic TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, created_unix_ms INTEGER NOT NULL
);
"""


class OutboxFull(ResourceExhausted):
    """The outbox holds as many bytes as it may: take no new work until the ledger has caught up."""

    default_reason = "OUTBOX_FULL"


class OutboxUnavailable(Unavailable):
    """The outbox could not be written (disk full or broken); nothing was stored."""


class OutboxLocked(Exception):
    """Another process, or another outbox of this one, owns the file."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One stored record. ``sequence`` counts from 1 without gaps per producer."""

    sequence: int
    topic: str
    key: bytes
    value: bytes
    created_unix_ms: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that waits for its number. ``make_value(producer_id, sequence)`` builds the value once the number is known."""

    topic: str
    key: bytes
    make_value: MakeValue


class OutboxFile:
    """Owns the file at ``path`` from construction to ``close``. Raises OutboxLocked when someone else does.

    Rows are numbered in the order in which they are appended; numbers are never used twice, and a number is only used up by a row that
    was committed. ``num_bytes``, ``num_rows``, ``last_sequence`` and ``oldest_unix_ms`` (0 when empty) may be read by any thread.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock_fd = _lock(path.with_suffix(".lock"))
        try:
            self._db = _open(path)
            self.producer_id, self.last_sequence = self._load_identity()
        except BaseException:
            os.close(self._lock_fd)
            raise
        self.num_rows, self.num_bytes = self._measure(self.last_sequence)
        self.oldest_unix_ms = self._read_oldest()

    def append(self, drafts: Sequence[Draft]) -> list[int | Exception]:
        """Stores the drafts in one commit; for each its number, or why it was not stored (OutboxFull, or what make_value raised)."""
        outcomes: list[int | Exception] = []
        rows: list[tuple[int, str, bytes, bytes, int]] = []
        num_bytes, now_ms = self.num_bytes, time.time_ns() // 1_000_000
        for draft in drafts:
            sequence = self.last_sequence + len(rows) + 1
            try:
                value = draft.make_value(self.producer_id, sequence)
            except Exception as error:  # Whatever it is, it is the caller's: it must neither use up a number nor end the writer.
                outcomes.append(error)
                continue
            if len(value) > MAX_VALUE_BYTES:
                outcomes.append(InvalidArgument(f"a record of {len(value)} bytes is larger than {MAX_VALUE_BYTES}"))
                continue
            size = _ROW_OVERHEAD_BYTES + len(draft.key) + len(value)
            if num_bytes + size > self.max_bytes:
                outcomes.append(OutboxFull("the outbox of usage records is full", retry_after_s=5.0))
                continue
            num_bytes += size
            rows.append((sequence, draft.topic, draft.key, value, now_ms))
            outcomes.append(sequence)
        if rows:
            self._commit_rows(rows)
            self._count(rows, num_bytes, now_ms)
        return outcomes

    def read(self, after: int, max_rows: int) -> list[OutboxRow]:
        """Up to ``max_rows`` rows with numbers above ``after``, in order. Raises OutboxUnavailable."""
        columns = "sequence, topic, key, value, created_unix_ms"
        with _translated("read"):
            found = self._db.execute(f"SELECT {columns} FROM rows WHERE sequence > ? ORDER BY sequence LIMIT ?", (after, max_rows))
            return [OutboxRow(*row) for row in found]

    def trim(self, through: int) -> int:
        """Deletes the rows up to and including number ``through`` for good; returns how many there were. Raises OutboxUnavailable.

        None of these numbers is given out from now on, even if the file is an old copy that never got that far.
        """
        with _translated("trimmed"):
            num_rows, num_bytes = self._measure(through)
            if num_rows:
                self._db.execute("DELETE FROM rows WHERE sequence <= ?", (through,))
                self.num_rows -= num_rows
                self.num_bytes -= num_bytes
                self.oldest_unix_ms = self._read_oldest()
            if through > self.last_sequence:
                self._db.execute("UPDATE identity SET last_sequence = ?", (through,))
                self.last_sequence = through
            return num_rows

    def try_write(self) -> None:
        """Writes something that changes nothing. Raises OutboxUnavailable when the disk does not take it."""
        with _translated("written"):
            self._db.execute("UPDATE identity SET last_sequence = last_sequence")

    def close(self) -> None:
        """Closes the file and gives it free for other processes."""
        self._db.close()
        os.close(self._lock_fd)

    def _commit_rows(self, rows: list[tuple[int, str, bytes, bytes, int]]) -> None:
        with _translated("written"), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("UPDATE identity SET last_sequence = ?", (rows[-1][0],))

    def _count(self, rows: list[tuple[int, str, bytes, bytes, int]], num_bytes: int, now_ms: int) -> None:
        self.last_sequence = rows[-1][0]
        self.num_rows += len(rows)
        self.num_bytes = num_bytes
        self.oldest_unix_ms = self.oldest_unix_ms or now_ms

    def _load_identity(self) -> tuple[str, int]:
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            found = self._db.execute("SELECT producer_id, last_sequence FROM identity").fetchone()
            if found is None:
                found = (str(uuid.uuid4()), 0)
                self._db.execute("INSERT INTO identity VALUES (?, ?)", found)
        return found[0], found[1]

    def _measure(self, through: int) -> tuple[int, int]:
        size = f"LENGTH(key) + LENGTH(value) + {_ROW_OVERHEAD_BYTES}"
        found = self._db.execute(f"SELECT COUNT(*), COALESCE(SUM({size}), 0) FROM rows WHERE sequence <= ?", (through,)).fetchone()
        return found[0], found[1]

    def _read_oldest(self) -> int:
        found = self._db.execute("SELECT created_unix_ms FROM rows ORDER BY sequence LIMIT 1").fetchone()
        return found[0] if found else 0


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise OutboxLocked(f"{path.name} is locked") from error
    return descriptor


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # NORMAL loses the last commits when power fails.
    db.executescript(_SCHEMA)
    return db


@contextmanager
def _translated(done: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise OutboxUnavailable(f"the outbox could not be {done}: {error}") from error
