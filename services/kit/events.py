"""What the mesh needs from an event log, whichever client and broker stand behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from services.kit.errors import DataLoss, Unavailable

Headers = tuple[tuple[str, bytes], ...]


class EventsUnavailable(Unavailable):
    """The broker did not answer in time, or said no. Records of a failed send may or may not be in the log: send them again."""


class OffsetOutOfRange(DataLoss):
    """A partition does not hold the offset that was asked for: the log was trimmed, re-created or restored. Never skipped in silence."""

    default_reason = "INTERNAL"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to publish; records with the same key go to the same partition, in order."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class ReceivedRecord:
    """A record as it lies in the log. ``timestamp_ms`` is the producer's clock, Unix time."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: Headers
    timestamp_ms: int


class EventProducer(Protocol):
    """Publishes records. Never blocks the event loop, whatever the broker does."""

    async def send(self, records: Sequence[OutgoingRecord]) -> None:
        """Returns when the broker has acknowledged every record. Raises EventsUnavailable within a bounded time otherwise."""

    async def close(self) -> None:
        """Gives connections and threads back; records of a send in progress may be lost (they are in the outbox)."""


class EventConsumer(Protocol):
    """Reads partitions from offsets that the caller keeps; it commits nothing to the broker."""

    async def partitions(self, topic: str) -> tuple[int, ...]:
        """Partition numbers of the topic; empty while it does not exist. Raises EventsUnavailable."""

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Identity of this incarnation of each topic (KIP-516): it changes when the topic is re-created.

        Without those that do not exist or have none. Raises EventsUnavailable.
        """

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions, and only these, from these offsets on. Raises EventsUnavailable."""

    async def poll(self, timeout_s: float, max_records: int) -> list[ReceivedRecord]:
        """Waits up to ``timeout_s`` for records; in offset order per partition. Raises EventsUnavailable or OffsetOutOfRange.

        An empty answer may also mean that the broker is away: the client goes on to try in the background.
        After EventsUnavailable it may be called again: it goes on behind the last record it returned.
        """

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition holds. Raises EventsUnavailable."""

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that each partition will give to its next record. Raises EventsUnavailable."""

    async def close(self) -> None:
        """Gives connections and threads back."""
