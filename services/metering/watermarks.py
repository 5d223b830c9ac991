"""Tells producers what the ledger holds, so that they may forget it: one key per producer in the registry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from services.kit import keyspace
from services.kit.etcd import EtcdClient, EtcdError

log = logging.getLogger(__name__)

RETRY_S = 0.5


class WatermarkPublisher:
    """Writes the newest watermark of each producer; while the registry is away only the newest one per producer is kept."""

    def __init__(self, client: EtcdClient, flush_s: float = 0.05) -> None:
        self._client, self._flush_s = client, flush_s
        self._pending: dict[str, int] = {}
        self._wake = asyncio.Event()

    def note(self, watermarks: Mapping[str, int]) -> None:
        """Remembers watermarks that are durable in the ledger; they are written soon."""
        self._pending.update(watermarks)
        self._wake.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._flush()
            await asyncio.sleep(self._flush_s)

    async def _flush(self) -> None:
        while self._pending:
            producer_id, watermark = next(iter(self._pending.items()))
            try:
                await self._client.put(keyspace.watermark(producer_id), str(watermark).encode())
            except EtcdError as error:
                log.warning("the registry is away, watermarks wait: %s", error.message)
                await asyncio.sleep(RETRY_S)
                continue
            # A newer one may have been noted while this one was written.
            if self._pending.get(producer_id) == watermark:
                del self._pending[producer_id]
