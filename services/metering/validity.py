"""Which records may enter the ledger as they are; the others are set aside with a reason and counted."""

import re

from services.metering.records import AttemptEntry, Outcome, RequestEntry

MAX_AHEAD_MS = 15 * 60 * 1000
MAX_AGE_MS = 45 * 24 * 3600 * 1000
MAX_SEQUENCE = 2**63 - 1

# What the registry takes as the name of a watermark.
_PRODUCER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


def has_name(producer_id: str, sequence: int) -> bool:
    """Whether the record can be stored, and its producer told of it, under this name."""
    return _PRODUCER_ID.fullmatch(producer_id) is not None and 1 <= sequence <= MAX_SEQUENCE


def fault_of(producer_id: str, sequence: int, entry: RequestEntry | AttemptEntry, now_unix_ms: int) -> str | None:
    """Why the record cannot be billed, or None.

    Times may be 15 minutes ahead of ours (clock skew) and 45 days old (a producer that was away); counts must be possible.
    """
    if not has_name(producer_id, sequence):
        return "the record has no usable name: producer_id and sequence are needed"
    if isinstance(entry, RequestEntry):
        return _time_fault("sealed_unix_ms", entry.sealed_unix_ms, now_unix_ms) or _request_fault(entry)
    return _time_fault("ended_unix_ms", entry.ended_unix_ms, now_unix_ms) or _attempt_fault(entry)


def _time_fault(name: str, unix_ms: int, now_unix_ms: int) -> str | None:
    if unix_ms <= 0:
        return f"{name} is missing or not positive"
    if unix_ms > now_unix_ms + MAX_AHEAD_MS:
        return f"{name} is more than 15 minutes in the future"
    if unix_ms < now_unix_ms - MAX_AGE_MS:
        return f"{name} is more than 45 days old"
    return None


def _request_fault(entry: RequestEntry) -> str | None:
    if not entry.charge_id or not entry.tenant_id:
        return "charge_id and tenant_id are needed"
    if entry.cached_prompt_tokens > entry.prompt_tokens:
        return "more cached prompt tokens than prompt tokens"
    if entry.outcome is Outcome.FAILED and (entry.prompt_tokens or entry.completion_tokens):
        return "a request that failed before its first token bills nothing"
    return None


def _attempt_fault(entry: AttemptEntry) -> str | None:
    if not entry.attempt_id or not entry.tenant_id:
        return "attempt_id and tenant_id are needed"
    return None
