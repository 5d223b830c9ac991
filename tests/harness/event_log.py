"""An event log in memory that implements EventConsumer and can do what brokers do to their readers: go away, be cut, be made anew."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from services.kit.events import EventsUnavailable, OffsetOutOfRange, ReceivedRecord, TopicPartition


class MemoryLog:
    """Partitions as lists; `away` makes every call fail; `recreate` gives a topic a new id and an empty log;
    `understated` is by how much it reports the ends of its logs too low.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._logs: dict[TopicPartition, list[bytes]] = {
            TopicPartition(topic, number): [] for topic, count in partitions.items() for number in range(count)
        }
        self._begins: dict[TopicPartition, int] = dict.fromkeys(self._logs, 0)
        self._ids = dict.fromkeys(partitions, "id-1")
        self._positions: dict[TopicPartition, int] = {}
        self._changed = asyncio.Event()
        self.away = False
        self.understated = 0

    def append(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Adds one record."""
        self._logs[TopicPartition(topic, partition)].append(value)
        self._changed.set()

    def recreate(self, topic: str, topic_id: str) -> None:
        """Makes the topic anew."""
        self._ids[topic] = topic_id
        self.cut(topic, 0)

    def cut(self, topic: str, length: int) -> None:
        """Loses everything behind the first `length` records of each partition, as a broker with an unclean start may."""
        for partition, log in self._logs.items():
            if partition.topic == topic:
                del log[length:]
        self._changed.set()

    def trim(self, topic: str, begin: int, partition: int = 0) -> None:
        """Deletes records below an offset, as retention does."""
        self._begins[TopicPartition(topic, partition)] = begin

    async def partitions(self, topic: str) -> tuple[int, ...]:
        """See EventConsumer."""
        self._check()
        return tuple(partition.partition for partition in self._logs if partition.topic == topic)

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See EventConsumer."""
        self._check()
        return {topic: self._ids[topic] for topic in topics}

    async def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See EventConsumer."""
        self._check()
        self._positions = dict(offsets)

    async def poll(self, timeout_s: float, max_records: int) -> list[ReceivedRecord]:
        """See EventConsumer; waits for a change instead of the time."""
        self._check()
        found: list[ReceivedRecord] = []
        for partition, position in self._positions.items():
            if position < self._begins[partition]:
                raise OffsetOutOfRange("below the beginning of the log")
            if position > len(self._logs[partition]):
                raise OffsetOutOfRange("beyond the end of the log")
            for offset, value in enumerate(self._logs[partition][position:], start=position):
                found.append(ReceivedRecord(partition.topic, partition.partition, offset, b"", value, (), 0))
        found = found[:max_records]
        for record in found:
            self._positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if not found:
            self._changed.clear()
            await asyncio.wait({asyncio.ensure_future(self._changed.wait())}, timeout=min(timeout_s, 0.02))
        return found

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See EventConsumer."""
        self._check()
        return {partition: self._begins[partition] for partition in partitions}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See EventConsumer."""
        self._check()
        return {partition: max(0, len(self._logs[partition]) - self.understated) for partition in partitions}

    async def close(self) -> None:
        """See EventConsumer."""

    def _check(self) -> None:
        if self.away:
            raise EventsUnavailable("the log is away")
