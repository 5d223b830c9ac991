"""The ledger's watermark of one producer, as published in the registry: up to which record it holds everything."""

from __future__ import annotations

import asyncio
import logging

from services.kit.etcd import EtcdClient, EtcdError, KeyValue

_log = logging.getLogger(__name__)
_RETRY_PAUSE_S = 0.25


class Watermark:
    """Follows ``key``, whose value is a decimal sequence number; ``run`` must be running. Only ever grows, whatever is published."""

    def __init__(self, client: EtcdClient, key: str) -> None:
        self._client = client
        self._key = key
        self._changed = asyncio.Event()
        self.value = 0
        self.live = False

    async def run(self) -> None:
        """Follows the key until cancelled; while etcd is away the last value stays and ``live`` is False."""
        while True:
            try:
                # Read as a prefix, because only that tells the revision from which to watch when the key is not there.
                listing = await self._client.get_prefix(self._key)
                self._take(next((kv for kv in listing.kvs if kv.key == self._key), None))
                await self._follow(listing.revision + 1)
            except EtcdError as error:
                self.live = False
                _log.warning("watermark of the ledger cannot be followed", extra={"fields": {"key": self._key, "error": error.details}})
                await asyncio.sleep(_RETRY_PAUSE_S)

    async def wait_beyond(self, value: int) -> int:
        """Waits until the watermark is above ``value`` and returns it."""
        while self.value <= value:
            await self._changed.wait()
        return self.value

    async def _follow(self, start_revision: int) -> None:
        async with self._client.watch(self._key, start_revision=start_revision) as watch:
            while True:
                for event in await watch.poll():
                    self._take(event.kv)
                self.live = watch.live

    def _take(self, kv: KeyValue | None) -> None:
        if kv is None or not kv.value:
            return
        if not kv.value.isdigit():
            _log.error("watermark of the ledger is not a number", extra={"fields": {"key": kv.key}})
            return
        if int(kv.value) > self.value:
            self.value = int(kv.value)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
