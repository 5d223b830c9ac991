"""The ledger in SQLite: WAL with synchronous=FULL, one transaction per batch."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, fields

from services.metering.ledger.interface import (
    Applied,
    Dimension,
    Position,
    Producer,
    RequestFilter,
    StaleBatch,
    Totals,
    UsageFilter,
    UsageSum,
)
from services.metering.ledger.schema import migrate
from services.metering.ledger.sqlite_reads import read_requests, read_usage
from services.metering.records import AttemptEntry, Batch, Record, RequestEntry, Unreadable
from services.metering.validity import has_name

BUSY_TIMEOUT_S = 10.0
MAX_PAYLOAD_BYTES = 64 * 1024

_REQUEST_COLUMNS = ", ".join(f":{field.name}" for field in fields(RequestEntry))
_ATTEMPT_COLUMNS = ", ".join(f":{field.name}" for field in fields(AttemptEntry))


class SqliteLedger:
    """See Ledger. One object, one connection; calls come from one thread at a time."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        migrate(self._db)

    def apply(self, batch: Batch) -> Applied:
        """See Ledger."""
        applied = Applied()
        with self._transaction():
            self._advance(batch)
            touched = {record.producer_id for record in batch.records if isinstance(record, Record) and self._store(batch, record, applied)}
            for unreadable in (record for record in batch.records if isinstance(record, Unreadable)):
                self._set_aside(batch, unreadable.digest, unreadable.fault, unreadable.payload[:MAX_PAYLOAD_BYTES], applied)
            applied.watermarks = {producer_id: self._raise_watermark(producer_id) for producer_id in sorted(touched)}
            self._count(applied)
        return applied

    def position(self, topic: str, partition: int) -> Position | None:
        """See Ledger."""
        row = self._db.execute("SELECT * FROM positions WHERE topic = ? AND partition = ?", (topic, partition)).fetchone()
        return Position(*row) if row else None

    def reset_position(self, topic: str, partition: int, topic_id: str) -> None:
        """See Ledger."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, 0)", (topic, partition, topic_id))
            self._add_total("topic_resets", 1)

    def producers(self) -> Sequence[Producer]:
        """See Ledger. A record above the watermark is stored; what is missing is the rest up to the highest."""
        rows = self._db.execute(
            "SELECT producer_id, watermark, highest, highest - watermark - (SELECT count(*) FROM records r"
            " WHERE r.producer_id = p.producer_id AND r.sequence > p.watermark) FROM producers p ORDER BY producer_id"
        )
        return [Producer(*row) for row in rows]

    def positions(self) -> Sequence[Position]:
        """See Ledger."""
        return [Position(*row) for row in self._db.execute("SELECT * FROM positions ORDER BY topic, partition")]

    def totals(self) -> Totals:
        """See Ledger."""
        found = dict(self._db.execute("SELECT name, value FROM totals"))
        names = ("duplicates", "conflicts", "quarantined", "topic_resets")
        return Totals(*(found.get(name, 0) for name in names))

    def usage(self, group_by: Sequence[Dimension], where: UsageFilter) -> Sequence[UsageSum]:
        """See Ledger."""
        return read_usage(self._db, group_by, where)

    def requests(self, where: RequestFilter) -> Sequence[tuple[RequestEntry, Sequence[AttemptEntry]]]:
        """See Ledger."""
        return read_requests(self._db, where)

    def close(self) -> None:
        """See Ledger."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _advance(self, batch: Batch) -> None:
        stored = self.position(batch.topic, batch.partition)
        if stored is not None and (stored.topic_id != batch.topic_id or batch.first_offset < stored.next_offset):
            raise StaleBatch(f"{batch.topic}/{batch.partition}: stored offset {stored.next_offset} is past {batch.first_offset}")
        row = (batch.topic, batch.partition, batch.topic_id, batch.next_offset)
        self._db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)", row)

    def _store(self, batch: Batch, record: Record, applied: Applied) -> bool:
        """Stores a record under its name; False when the name cannot be used (the record is then only set aside)."""
        if not has_name(record.producer_id, record.sequence):
            self._set_aside(batch, record.digest, record.fault or "no name", _payload(record), applied)
            return False
        known = self._digest_of(record)
        if known == record.digest:
            applied.num_duplicates += 1
        elif known is not None:
            applied.num_conflicts += 1
            self._set_aside(batch, record.digest, "the same name with other content", _payload(record), applied)
        else:
            self._db.execute("INSERT INTO records VALUES (?, ?, ?)", (record.producer_id, record.sequence, record.digest))
            self._enter(batch, record, applied)
        return True

    def _digest_of(self, record: Record) -> bytes | None:
        row = self._db.execute(
            "SELECT digest FROM records WHERE producer_id = ? AND sequence = ?", (record.producer_id, record.sequence)
        ).fetchone()
        return row[0] if row else None

    def _enter(self, batch: Batch, record: Record, applied: Applied) -> None:
        """Enters a record that is new by name; its charge or attempt must be new as well, or it bills a second time."""
        entry, fault = record.entry, record.fault
        if fault is None:
            fault = self._enter_request(entry, applied) if isinstance(entry, RequestEntry) else self._enter_attempt(entry, applied)
        if fault is not None:
            self._set_aside(batch, record.digest, fault, _payload(record), applied)

    def _enter_request(self, entry: RequestEntry, applied: Applied) -> str | None:
        cursor = self._db.execute(f"INSERT OR IGNORE INTO requests VALUES ({_REQUEST_COLUMNS})", asdict(entry))
        if cursor.rowcount == 0:
            applied.num_conflicts += 1
            return "the charge is in the ledger already, from another record"
        applied.num_requests += 1
        row = (entry.tenant_id, entry.model, utc_day(entry.sealed_unix_ms))
        counts = (entry.prompt_tokens, entry.cached_prompt_tokens, entry.completion_tokens)
        self._db.execute(
            "INSERT INTO usage_daily VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT DO UPDATE SET num_requests = num_requests + 1,"
            " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
            " cached_prompt_tokens = cached_prompt_tokens + excluded.cached_prompt_tokens,"
            " completion_tokens = completion_tokens + excluded.completion_tokens",
            row + counts,
        )
        return None

    def _enter_attempt(self, entry: AttemptEntry, applied: Applied) -> str | None:
        cursor = self._db.execute(f"INSERT OR IGNORE INTO attempts VALUES ({_ATTEMPT_COLUMNS})", asdict(entry))
        if cursor.rowcount == 0:
            applied.num_conflicts += 1
            return "the attempt is in the ledger already, from another record"
        applied.num_attempts += 1
        return None

    def _set_aside(self, batch: Batch, digest: bytes, fault: str, payload: bytes, applied: Applied) -> None:
        row = (batch.topic, batch.topic_id, batch.partition, batch.first_offset, digest, fault, payload)
        applied.num_quarantined += self._db.execute("INSERT OR IGNORE INTO quarantine VALUES (?, ?, ?, ?, ?, ?, ?)", row).rowcount

    def _raise_watermark(self, producer_id: str) -> int:
        """Moves a producer's watermark over every consecutive record that is stored, and returns it."""
        row = self._db.execute("SELECT watermark FROM producers WHERE producer_id = ?", (producer_id,)).fetchone()
        watermark = before = row[0] if row else 0
        stored = self._db.execute(
            "SELECT sequence FROM records WHERE producer_id = ? AND sequence > ? ORDER BY sequence", (producer_id, before)
        )
        highest = before
        for (sequence,) in stored:
            watermark += sequence == watermark + 1
            highest = sequence
        self._db.execute(
            "INSERT INTO producers VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET watermark = excluded.watermark,"
            " highest = max(highest, excluded.highest)",
            (producer_id, watermark, highest),
        )
        return int(watermark)

    def _count(self, applied: Applied) -> None:
        self._add_total("duplicates", applied.num_duplicates)
        self._add_total("conflicts", applied.num_conflicts)
        self._add_total("quarantined", applied.num_quarantined)

    def _add_total(self, name: str, value: int) -> None:
        if value:
            self._db.execute("INSERT INTO totals VALUES (?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value", (name, value))


def utc_day(unix_ms: int) -> str:
    """YYYY-MM-DD in UTC, whatever the machine's time zone."""
    return time.strftime("%Y-%m-%d", time.gmtime(unix_ms / 1000))


def _payload(record: Record) -> bytes:
    return repr((record.producer_id, record.sequence, *astuple(record.entry))).encode()[:MAX_PAYLOAD_BYTES]
