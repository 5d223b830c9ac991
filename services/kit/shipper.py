"""Ships an outbox to the event log, and forgets a record only when the ledger has it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter

from services.kit.etcd import EtcdClient
from services.kit.events import EventProducer, EventsUnavailable, OutgoingRecord
from services.kit.outbox import Outbox, OutboxRow, OutboxUnavailable
from services.kit.watermark import Watermark

_log = logging.getLogger(__name__)

_MAX_BATCH_ROWS = 500
_RETRY_PAUSE_S = 0.5
_MAX_RESEND_BACKOFF = 32
_GATHER_S = 0.5
"""From the first record of a batch to its leaving: what every process on the way to the ledger does once per batch, it does less often."""


class ShipperMetrics:
    """Counters of all shippers of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter("inferway_outbox_sent_rows", "Records acknowledged by the broker, repeats included.", registry=registry)
        self.failed = Counter("inferway_outbox_failed_sends", "Batches that the broker did not acknowledge.", registry=registry)
        self.resends = Counter("inferway_outbox_resends", "Times that everything not in the ledger was sent again.", registry=registry)
        self.trimmed = Counter("inferway_outbox_trimmed_rows", "Records that the ledger has.", registry=registry)


class Shipper:
    """Sends the records of one outbox in order and deletes them up to the ledger's watermark, which it follows at ``watermark_key``.

    The broker's acknowledgement deletes nothing. When the watermark does not move for ``resend_after_s`` although records were sent, all
    records above it are sent again (the broker may have lost them), then after twice that time, and so on up to 32 times; consumers
    recognise repeats by producer id and sequence, which travel inside the value and as headers. While etcd is away nothing is sent again.
    """

    def __init__(
        self,
        outbox: Outbox,
        producer: EventProducer,
        client: EtcdClient,
        watermark_key: str,
        *,
        resend_after_s: float = 10.0,
        metrics: ShipperMetrics | None = None,
    ) -> None:
        self._outbox = outbox
        self._producer = producer
        self._watermark = Watermark(client, watermark_key)
        self._resend_after_s = resend_after_s
        self._metrics = metrics or ShipperMetrics(CollectorRegistry())
        self._sent = 0
        self._progress_at = asyncio.get_running_loop().time()
        self._resend_backoff = 1

    async def run(self) -> None:
        """Ships until cancelled; no state of broker or etcd ends it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watermark.run())
            tasks.create_task(self._trim())
            tasks.create_task(self._ship())

    async def _trim(self) -> None:
        trimmed = 0
        while True:
            trimmed = await self._watermark.wait_beyond(trimmed)
            if trimmed > self._outbox.last_sequence:
                _log.error("the ledger is ahead of the outbox: an old copy of the file is in use", extra={"fields": {"watermark": trimmed}})
            self._progress()
            with suppress(OutboxUnavailable):  # A full disk; the next watermark tries again.
                self._metrics.trimmed.inc(await self._outbox.trim(trimmed))

    async def _ship(self) -> None:
        while True:
            self._rewind_if_stuck()
            newest = self._outbox.last_sequence
            try:
                rows = await self._outbox.read(max(self._sent, self._watermark.value), _MAX_BATCH_ROWS)
            except OutboxUnavailable as error:
                _log.error("the outbox cannot be read", extra={"fields": {"error": error.message}})
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            if rows:
                await self._send(rows)
            else:
                await self._wait_for_work(newest)

    async def _send(self, rows: list[OutboxRow]) -> None:
        try:
            await self._producer.send([self._record(row) for row in rows])
        except EventsUnavailable as error:
            self._metrics.failed.inc()
            _log.warning("records wait in the outbox, the broker does not take them", extra={"fields": {"error": error.message}})
            await asyncio.sleep(_RETRY_PAUSE_S)
            return
        if self._sent <= self._watermark.value:  # Nothing was under way before this batch.
            self._progress_at = asyncio.get_running_loop().time()
        self._sent = rows[-1].sequence
        self._metrics.sent.inc(len(rows))

    def _record(self, row: OutboxRow) -> OutgoingRecord:
        headers = (("producer_id", self._outbox.producer_id.encode()), ("sequence", str(row.sequence).encode()))
        return OutgoingRecord(row.topic, row.key, row.value, headers)

    async def _wait_for_work(self, newest: int) -> None:
        """Returns soon after there is a record beyond `newest`, with those that came meanwhile, or when it is time to send again.

        Nothing up to `newest` is left to send, even where the watermark is lower: the registry lost it, or was not read yet.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._resend_at() if self._sent > self._watermark.value else None):
                await self._outbox.wait_beyond(newest)
                await asyncio.sleep(_GATHER_S)

    def _rewind_if_stuck(self) -> None:
        if self._sent <= self._watermark.value or asyncio.get_running_loop().time() < self._resend_at():
            return
        if self._watermark.live:
            self._metrics.resends.inc()
            _log.warning(
                "the ledger does not have all sent records, sending them again", extra={"fields": {"after": self._watermark.value}}
            )
            self._sent = self._watermark.value
            self._resend_backoff = min(self._resend_backoff * 2, _MAX_RESEND_BACKOFF)
        self._progress_at = asyncio.get_running_loop().time()

    def _resend_at(self) -> float:
        return self._progress_at + self._resend_after_s * self._resend_backoff

    def _progress(self) -> None:
        self._progress_at = asyncio.get_running_loop().time()
        self._resend_backoff = 1
