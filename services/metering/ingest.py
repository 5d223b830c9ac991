"""Reads usage records from the log into the ledger: where to start comes from the ledger, never from the broker."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from services.kit.clock import Clock
from services.kit.events import EventConsumer, EventsUnavailable, OffsetOutOfRange, ReceivedRecord, TopicPartition
from services.metering.ledger.interface import Applied, StaleBatch
from services.metering.ledger.thread import LedgerThread
from services.metering.log_ends import LogEnds
from services.metering.metrics import MeteringMetrics
from services.metering.records import Batch, Record, Unreadable

log = logging.getLogger(__name__)

Decode = Callable[[bytes, int], Record | Unreadable]


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Which topics are read; how long a poll waits; how often the log is checked for having been replaced."""

    topics: tuple[str, ...]
    max_batch_records: int = 500
    poll_s: float = 1.0
    check_log_s: float = 5.0
    retry_s: float = 0.5


class Ingest:
    """One consumer of all partitions. Every batch is stored together with its offset; `on_applied` then hears the new watermarks.

    `prepare` makes sure that the topics exist, each time before reading starts; a broker in memory forgets them.
    """

    def __init__(
        self,
        consumer: EventConsumer,
        ledger: LedgerThread,
        decode: Decode,
        on_applied: Callable[[Applied], None],
        prepare: Callable[[], Awaitable[None]],
        clock: Clock,
        metrics: MeteringMetrics,
        log_ends: LogEnds,
        settings: IngestSettings,
    ) -> None:
        self._consumer, self._ledger, self._decode = consumer, ledger, decode
        self._on_applied, self._prepare, self._clock, self._metrics = on_applied, prepare, clock, metrics
        self._log_ends, self._settings = log_ends, settings
        self._topic_ids: dict[str, str] = {}
        self._out_of_range = False

    async def run(self) -> None:
        """Reads until cancelled; a broker that is away or a log that was replaced starts the reading anew."""
        while True:
            try:
                await self._prepare()
                await self._assign()
                self._out_of_range = False
                await self._consume()
            except StaleBatch as stale:
                log.warning("reading starts anew from the ledger's offsets: %s", stale.message)
            except OffsetOutOfRange as error:
                self._out_of_range = True
                log.error("the log does not hold the next offset, reading starts anew: %s", error.message)
            except EventsUnavailable as error:
                log.warning("the broker is away: %s", error.message)
                await asyncio.sleep(self._settings.retry_s)

    async def _assign(self) -> None:
        offsets: dict[TopicPartition, int] = {}
        self._topic_ids = await self._present_topic_ids()
        for topic in self._settings.topics:
            partitions = [TopicPartition(topic, number) for number in await self._consumer.partitions(topic)]
            begin = await self._consumer.beginning_offsets(partitions)
            end = await self._consumer.end_offsets(partitions)
            for partition in partitions:
                offsets[partition] = await self._start_of(partition, begin[partition], end[partition])
        await self._consumer.assign(offsets)

    async def _start_of(self, partition: TopicPartition, begin: int, end: int) -> int:
        """The offset to go on at, after checking that the log is the one that the ledger knows."""
        topic_id = self._topic_ids[partition.topic]
        stored = await self._ledger.call(lambda ledger: ledger.position(partition.topic, partition.partition))
        if stored is None:
            return begin
        # The end alone proves nothing: some brokers report it too low. A refused read does.
        was_cut = self._out_of_range and stored.next_offset > end
        if stored.topic_id != topic_id or was_cut:
            log.error("the log of a partition was replaced or cut; it is read from its beginning", extra={"fields": _named(partition)})
            self._metrics.topic_resets.inc()
            await self._ledger.call(lambda ledger: ledger.reset_position(partition.topic, partition.partition, topic_id))
            return begin
        if stored.next_offset < begin:
            log.error("records were deleted from the log before they were read", extra={"fields": _named(partition)})
            self._metrics.retention_gaps.inc()
        return max(stored.next_offset, begin)

    async def _consume(self) -> None:
        """Polls and applies; returns when a topic is not the same any more."""
        next_check = self._clock.monotonic() + self._settings.check_log_s
        while True:
            received = await self._consumer.poll(self._settings.poll_s, self._settings.max_batch_records)
            for batch in self._batches(received):
                await self._apply(batch)
            if self._clock.monotonic() >= next_check:
                if await self._present_topic_ids() != self._topic_ids:
                    return
                await self._measure_lag()
                next_check = self._clock.monotonic() + self._settings.check_log_s

    async def _apply(self, batch: Batch) -> None:
        applied = await self._ledger.call(lambda ledger: ledger.apply(batch))
        self._metrics.count(applied)
        self._on_applied(applied)

    async def _present_topic_ids(self) -> dict[str, str]:
        """Of all topics that are read; empty for one without."""
        return dict.fromkeys(self._settings.topics, "") | await self._consumer.topic_ids(self._settings.topics)

    async def _measure_lag(self) -> None:
        stored = await self._ledger.call(lambda ledger: ledger.positions())
        positions = [position for position in stored if position.topic in self._topic_ids]
        found = await self._consumer.end_offsets([TopicPartition(position.topic, position.partition) for position in positions])
        ends = {(partition.topic, partition.partition): end for partition, end in found.items()}
        self._log_ends.update(ends)
        lags = {(p.topic, p.partition): max(0, ends[p.topic, p.partition] - p.next_offset) for p in positions}
        self._metrics.set_lag(lags)

    def _batches(self, received: Sequence[ReceivedRecord]) -> list[Batch]:
        """One batch per partition, in the order of offsets."""
        now = self._clock.unix_ms()
        ordered = sorted(received, key=lambda record: (record.topic, record.partition, record.offset))
        return [
            Batch(
                topic=topic,
                partition=number,
                topic_id=self._topic_ids[topic],
                first_offset=records[0].offset,
                next_offset=records[-1].offset + 1,
                records=tuple(self._decode(record.value, now) for record in records),
            )
            for (topic, number), group in itertools.groupby(ordered, key=lambda record: (record.topic, record.partition))
            if (records := list(group))
        ]


def _named(partition: TopicPartition) -> dict[str, str | int]:
    return {"topic": partition.topic, "partition": partition.partition}
