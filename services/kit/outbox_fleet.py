"""Everything a process ships: its own outbox, and those of processes of this machine that died."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from services.kit.etcd import EtcdClient
from services.kit.events import EventProducer
from services.kit.outbox import Outbox
from services.kit.outbox_directory import OutboxDirectory
from services.kit.shipper import Shipper, ShipperMetrics

_log = logging.getLogger(__name__)


class OutboxFleet:
    """Opens the outbox of this process (``own``), ships it, and looks every ``adopt_every_s`` for orphans to ship.

    ``watermark_key`` gives the registry key of a producer id's watermark.
    """

    def __init__(
        self,
        directory: OutboxDirectory,
        producer: EventProducer,
        client: EtcdClient,
        watermark_key: Callable[[str], str],
        *,
        resend_after_s: float = 10.0,
        adopt_every_s: float = 30.0,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._directory = directory
        self._producer = producer
        self._client = client
        self._watermark_key = watermark_key
        self._resend_after_s = resend_after_s
        self._adopt_every_s = adopt_every_s
        registry = registry or CollectorRegistry()
        self._metrics = ShipperMetrics(registry)
        self.own = directory.open_own()
        self._outboxes = [self.own]
        self._add_gauges(registry)

    async def run(self) -> None:
        """Ships until cancelled. The own outbox stays open for appends until ``close``."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._shipper(self.own).run())
            while True:
                for outbox in await self._directory.adopt():
                    _log.warning("shipping the records of a process that died", extra={"fields": {"producer_id": outbox.producer_id}})
                    tasks.create_task(self._ship_until_empty(outbox))
                await asyncio.sleep(self._adopt_every_s)

    async def close(self) -> None:
        """Closes the own outbox, once nothing is appended any more; what is left in it is shipped by the next process."""
        await self.own.close()

    async def _ship_until_empty(self, outbox: Outbox) -> None:
        self._outboxes.append(outbox)
        try:
            async with asyncio.TaskGroup() as tasks:
                shipping = tasks.create_task(self._shipper(outbox).run())
                await outbox.wait_empty()
                shipping.cancel()
        finally:
            self._outboxes.remove(outbox)
            await outbox.close()

    def _shipper(self, outbox: Outbox) -> Shipper:
        key = self._watermark_key(outbox.producer_id)
        return Shipper(outbox, self._producer, self._client, key, resend_after_s=self._resend_after_s, metrics=self._metrics)

    def _add_gauges(self, registry: CollectorRegistry) -> None:
        rows = Gauge("inferway_outbox_rows", "Records that the ledger does not have yet.", registry=registry)
        rows.set_function(lambda: sum(outbox.num_rows for outbox in list(self._outboxes)))
        size = Gauge("inferway_outbox_bytes", "Size of the records that the ledger does not have yet.", registry=registry)
        size.set_function(lambda: sum(outbox.num_bytes for outbox in list(self._outboxes)))
        age = Gauge("inferway_outbox_oldest_age_seconds", "Age of the oldest record that the ledger does not have yet.", registry=registry)
        age.set_function(self._oldest_age_s)

    def _oldest_age_s(self) -> float:
        oldest = min((outbox.oldest_unix_ms for outbox in list(self._outboxes) if outbox.oldest_unix_ms), default=0)
        return max(0.0, time.time() - oldest / 1000) if oldest else 0.0
