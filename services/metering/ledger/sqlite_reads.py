"""Questions to the ledger in SQLite: sums from the roll-up, requests with their attempts."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from services.metering.ledger.interface import Dimension, RequestFilter, UsageFilter, UsageSum
from services.metering.records import AttemptEntry, Outcome, RequestEntry


def read_usage(db: sqlite3.Connection, group_by: Sequence[Dimension], where: UsageFilter) -> Sequence[UsageSum]:
    """Sums of the roll-up by the asked dimensions, in their order."""
    shown = [dimension.value if dimension in group_by else "''" for dimension in (Dimension.TENANT, Dimension.MODEL, Dimension.DAY)]
    clauses = [
        ("tenant_id = ?", where.tenant_id),
        ("model = ?", where.model),
        ("day >= ?", where.from_day),
        ("day <= ?", where.to_day),
    ]
    condition, values = _where([(clause, value) for clause, value in clauses if value])
    columns = ", ".join(dimension.value for dimension in group_by)
    grouping = f" GROUP BY {columns} ORDER BY {columns}" if columns else ""
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in ("num_requests", "prompt_tokens", "cached_prompt_tokens", "completion_tokens"))
    rows = db.execute(f"SELECT {', '.join(shown)}, {sums} FROM usage_daily{condition}{grouping}", values)
    return [UsageSum(*row) for row in rows]


def read_requests(db: sqlite3.Connection, where: RequestFilter) -> Sequence[tuple[RequestEntry, Sequence[AttemptEntry]]]:
    """Requests, newest first, each with its attempts by time."""
    condition, values = _where(_request_clauses(where))
    rows = db.execute(f"SELECT * FROM requests{condition} ORDER BY sealed_unix_ms DESC, charge_id DESC LIMIT ?", [*values, where.limit])
    entries = [_request(row) for row in rows]
    attempts = _attempts_of(db, [entry.charge_id for entry in entries])
    return [(entry, attempts.get(entry.charge_id, [])) for entry in entries]


def _request_clauses(where: RequestFilter) -> list[tuple[str, Any]]:
    clauses: list[tuple[str, Any]] = []
    if where.tenant_id:
        clauses.append(("tenant_id = ?", where.tenant_id))
    if where.ids:
        marks = ", ".join("?" * len(where.ids))
        clauses.append((f"(charge_id IN ({marks}) OR completion_id IN ({marks}) OR request_id IN ({marks}))", where.ids * 3))
    if where.from_unix_ms is not None:
        clauses.append(("sealed_unix_ms >= ?", where.from_unix_ms))
    if where.to_unix_ms is not None:
        clauses.append(("sealed_unix_ms < ?", where.to_unix_ms))
    if where.before is not None:
        clauses.append(("(sealed_unix_ms, charge_id) < (?, ?)", where.before))
    return clauses


def _where(clauses: Sequence[tuple[str, Any]]) -> tuple[str, list[Any]]:
    if not clauses:
        return "", []
    values: list[Any] = []
    for _, value in clauses:
        values.extend(value if isinstance(value, tuple) else (value,))
    return " WHERE " + " AND ".join(clause for clause, _ in clauses), values


def _attempts_of(db: sqlite3.Connection, charge_ids: Sequence[str]) -> dict[str, list[AttemptEntry]]:
    found: dict[str, list[AttemptEntry]] = {}
    marks = ", ".join("?" * len(charge_ids))
    rows = db.execute(f"SELECT * FROM attempts WHERE charge_id IN ({marks}) ORDER BY started_unix_ms, attempt_id", charge_ids)
    for row in rows:
        attempt = AttemptEntry(*_typed(row))
        found.setdefault(attempt.charge_id, []).append(attempt)
    return found


def _request(row: Sequence[Any]) -> RequestEntry:
    return RequestEntry(*_typed(row))


def _typed(row: Sequence[Any]) -> list[Any]:
    """A row with its outcome, which both tables have in the eighth column, as the enum."""
    return [*row[:7], Outcome(row[7]), *row[8:]]
