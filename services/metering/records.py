"""What the ledger stores: one request or one attempt per record, in plain values."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a request or an attempt ended."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RequestEntry:
    """A logical request: what the tenant asked for and is billed for. Token counts are billable ones; times are Unix ms in UTC."""

    charge_id: str
    request_id: str
    completion_id: str
    tenant_id: str
    key_id: str
    model: str
    model_version: str
    outcome: Outcome
    finish_reason: str
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int
    accepted_unix_ms: int
    sealed_unix_ms: int
    num_attempts: int
    surface: str
    error_reason: str
    ttft_ms: int


@dataclass(frozen=True, slots=True)
class AttemptEntry:
    """What an engine did for a request, by the engine's word. Times are Unix ms in UTC."""

    attempt_id: str
    charge_id: str
    request_id: str
    tenant_id: str
    model: str
    model_version: str
    replica_id: str
    outcome: Outcome
    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    discarded_tokens: int
    resumed_tokens: int
    started_unix_ms: int
    ended_unix_ms: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a producer; (producer_id, sequence) names it for ever, `digest` is the SHA-256 of its bytes.

    `fault` says why it cannot be billed as it is (absurd time, impossible counts); such a record is set aside, not dropped.
    """

    producer_id: str
    sequence: int
    digest: bytes
    entry: RequestEntry | AttemptEntry
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes that are no record at all; kept up to 64 KiB."""

    digest: bytes
    payload: bytes
    fault: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records of one partition: offsets from `first_offset` to before `next_offset`, gaps allowed."""

    topic: str
    partition: int
    topic_id: str
    first_offset: int
    next_offset: int
    records: tuple[Record | Unreadable, ...]
