"""Keeps one leased key of the registry present for as long as its owner lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque

from google.protobuf import json_format
from google.protobuf.message import Message

from services.kit.etcd import EtcdClient, EtcdError, KeyValue, Lease, LeaseKeeper, LeaseNotFound, txn

_log = logging.getLogger(__name__)
_RETRY_PAUSE_S = 0.25
_DEREGISTER_TIMEOUT_S = 2.0


class Registration:
    """Makes ``key`` hold ``message`` under a lease of ``ttl_s`` seconds, and makes it so again whenever that is not so.

    The lease may expire or be revoked, the key may be deleted, etcd may be away: the key is back within one TTL of the moment at which
    that is possible, always under the same key, so there is never a second entry. An entry of an earlier owner of the key (the same process
    before a restart) is taken over. When another live owner takes the key away, this one waits until the key is free again.
    """

    def __init__(self, client: EtcdClient, keeper: LeaseKeeper, key: str, message: Message, *, ttl_s: int = 10) -> None:
        self._client = client
        self._keeper = keeper
        self._key = key
        self._value = _encode(message)
        self._ttl_s = ttl_s
        self._lease: Lease | None = None
        self._own_leases: deque[int] = deque(maxlen=8)
        self._has_registered = False
        self._dirty = asyncio.Event()
        self._in_place = asyncio.Event()

    @property
    def registered(self) -> bool:
        """True while, as far as is known, etcd holds the newest message under a lease of ours."""
        return self._in_place.is_set()

    async def wait_registered(self) -> None:
        """Waits until etcd holds the newest message. Bound it with asyncio.timeout."""
        await self._in_place.wait()

    def update(self, message: Message) -> None:
        """Replaces the message; it is written as soon as etcd is there, and only the newest one is."""
        self._value = _encode(message)
        self._mark_dirty("")

    async def run(self) -> None:
        """Keeps the key in place until cancelled, then removes it if etcd answers at once (else its lease ends by itself)."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_in_place())
                tasks.create_task(self._watch_key())
        finally:
            await self._deregister()

    async def _keep_in_place(self) -> None:
        while True:
            self._dirty.clear()
            try:
                await self._reconcile()
            except EtcdError as error:
                _log.warning("registration is not in place", extra={"fields": {"key": self._key, "error": error.details}})
                if isinstance(error, LeaseNotFound):
                    self._drop_lease()
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            await self._dirty.wait()

    async def _reconcile(self) -> None:
        """Compares the key with what it should be and writes it, guarded, if it differs."""
        if self._lease is None or self._lease.lost.is_set():
            self._lease = await self._keeper.grant(self._ttl_s, on_lost=self._mark_dirty)
            self._own_leases.append(self._lease.id)
        value, lease = self._value, self._lease
        current = await self._client.get(self._key)
        while not _holds(current, value, lease.id):
            if self._is_taken(current):
                _log.error("another owner holds the key, waiting until it is free", extra={"fields": {"key": self._key}})
                return
            guard = txn.unchanged_since(self._key, current.mod_revision if current else 0)
            written = await self._client.txn([guard], [txn.put(self._key, value, lease.id), txn.read(self._key)], [txn.read(self._key)])
            current = written.kvs[0] if written.kvs else None
        self._has_registered = True
        if not self._dirty.is_set():
            self._in_place.set()

    def _is_taken(self, current: KeyValue | None) -> bool:
        return self._has_registered and current is not None and current.lease not in self._own_leases

    async def _watch_key(self) -> None:
        """Has the key looked at whenever it changes and whenever the watch starts (it may have changed before that)."""
        while True:
            try:
                async with self._client.watch(self._key) as watch:
                    while True:
                        if any(event.deleted for event in await watch.poll()):
                            self._in_place.clear()
                        self._dirty.set()
            except EtcdError as error:
                _log.warning("watch of the registration starts anew", extra={"fields": {"key": self._key, "error": error.details}})
                self._dirty.set()
                await asyncio.sleep(_RETRY_PAUSE_S)

    def _mark_dirty(self, _reason: str) -> None:
        self._in_place.clear()
        self._dirty.set()

    def _drop_lease(self) -> None:
        self._in_place.clear()
        if self._lease is not None:
            self._keeper.forget(self._lease)
            self._lease = None

    async def _deregister(self) -> None:
        self._in_place.clear()
        if self._lease is not None and not self._lease.lost.is_set():
            with contextlib.suppress(EtcdError, TimeoutError):
                async with asyncio.timeout(_DEREGISTER_TIMEOUT_S):
                    await self._keeper.revoke(self._lease)


def _encode(message: Message) -> bytes:
    return json_format.MessageToJson(message, indent=None).encode()


def _holds(current: KeyValue | None, value: bytes, lease: int) -> bool:
    return current is not None and current.value == value and current.lease == lease
