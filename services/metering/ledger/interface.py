"""What metering needs of a ledger, whatever database is below it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from services.kit.errors import InferwayError
from services.metering.records import AttemptEntry, Batch, RequestEntry


class StaleBatch(InferwayError):
    """Somebody else moved the partition's offset: nothing was stored; read again from the stored offset."""

    code = "FAILED_PRECONDITION"


@dataclass(slots=True)
class Applied:
    """What one batch did. `watermarks` has the new watermark of every producer that the batch touched."""

    num_requests: int = 0
    num_attempts: int = 0
    num_duplicates: int = 0
    num_conflicts: int = 0
    num_quarantined: int = 0
    watermarks: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Position:
    """Where to go on reading a partition."""

    topic: str
    partition: int
    topic_id: str
    next_offset: int


@dataclass(frozen=True, slots=True)
class Producer:
    """Progress of one producer: all records up to `watermark` are stored, `num_missing` between it and `highest` are not."""

    producer_id: str
    watermark: int
    highest: int
    num_missing: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of the ledger since it began."""

    num_duplicates: int
    num_conflicts: int
    num_quarantined: int
    num_topic_resets: int


class Dimension(StrEnum):
    """By what usage may be summed; the value is the column."""

    TENANT = "tenant_id"
    MODEL = "model"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which usage is summed; empty strings mean all. Days are YYYY-MM-DD in UTC, both included."""

    tenant_id: str = ""
    model: str = ""
    from_day: str = ""
    to_day: str = ""


@dataclass(frozen=True, slots=True)
class UsageSum:
    """One row of summed usage; dimensions that were not asked for are empty."""

    tenant_id: str
    model: str
    day: str
    num_requests: int
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which requests are listed, newest first; `before` is (sealed_unix_ms, charge_id) of the last row already seen."""

    tenant_id: str = ""
    ids: tuple[str, ...] = ()
    from_unix_ms: int | None = None
    to_unix_ms: int | None = None
    before: tuple[int, str] | None = None
    limit: int = 100


class Ledger(Protocol):
    """Calls block and may come from any one thread at a time; the caller keeps them off the event loop."""

    def apply(self, batch: Batch) -> Applied:
        """Stores a batch once, in one transaction with its offset. Raises StaleBatch when its offset was already passed."""

    def position(self, topic: str, partition: int) -> Position | None:
        """Where to go on; None for a partition never read."""

    def reset_position(self, topic: str, partition: int, topic_id: str) -> None:
        """Starts the partition anew at offset 0 under a new topic id; the dedupe keys keep what was stored from counting twice."""

    def producers(self) -> Sequence[Producer]:
        """All producers ever seen."""

    def positions(self) -> Sequence[Position]:
        """All partitions ever read."""

    def totals(self) -> Totals:
        """Counters since the ledger began."""

    def usage(self, group_by: Sequence[Dimension], where: UsageFilter) -> Sequence[UsageSum]:
        """Sums, in the order of the dimensions."""

    def requests(self, where: RequestFilter) -> Sequence[tuple[RequestEntry, Sequence[AttemptEntry]]]:
        """Requests with their attempts, newest first."""

    def close(self) -> None:
        """Frees the database."""
