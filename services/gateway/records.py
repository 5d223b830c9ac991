"""The sealed record of a logical request: what metering bills, made exactly once per charge."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Outcome(Enum):
    """How a logical request ended, in the ledger's words."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class SealedRequest:
    """One logical request. Token counts are what is billed; `finish_reason` is stop, length or ""; times are Unix milliseconds."""

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


class RecordSink(Protocol):
    """Where sealed requests go."""

    def require_room(self) -> None:
        """Raises OUTBOX_FULL when no paid work may be taken now."""

    async def append(self, record: SealedRequest) -> None:
        """Returns when the record is durable."""
