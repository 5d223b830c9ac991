"""Election of one leader among processes, with a fencing token that every write of the leader can carry."""

from __future__ import annotations

import asyncio

from services.kit.etcd.client import EtcdClient
from services.kit.etcd.errors import EtcdError, LeaseNotFound
from services.kit.etcd.lease import Lease, LeaseKeeper
from services.kit.etcd.txn import Guard, absent, created_at, put, read
from services.kit.etcd.values import KeyValue

_RETRY_PAUSE_S = 0.5


class Leadership:
    """Proof of being the leader. Stop acting as the leader as soon as ``lost`` is set; a late write is refused by ``guard``."""

    def __init__(self, key: str, token: int, lease: Lease, keeper: LeaseKeeper) -> None:
        self._key = key
        self._lease = lease
        self._keeper = keeper
        self.token = token

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease behind the leadership is lost."""
        return self._lease.lost

    def guard(self) -> Guard:
        """A transaction guard that holds only while this very leadership lasts: put it into every write the leader makes."""
        return created_at(self._key, self.token)

    async def resign(self) -> None:
        """Gives the leadership up, so that another process has it at once. Raises EtcdError; the lease then ends by itself."""
        await self._keeper.revoke(self._lease)


class Election:
    """A candidate for the leadership that ``key`` stands for. ``identity`` is stored in the key for people to read."""

    def __init__(self, client: EtcdClient, keeper: LeaseKeeper, key: str, identity: str, ttl_s: int = 10) -> None:
        self._client = client
        self._keeper = keeper
        self._key = key
        self._identity = identity.encode()
        self._ttl_s = ttl_s

    async def campaign(self) -> Leadership:
        """Waits until this candidate leads. Rides out outages of etcd; a candidate holds one lease, kept alive while it waits."""
        lease: Lease | None = None
        try:
            while True:
                try:
                    if lease is None or lease.lost.is_set():
                        lease = await self._keeper.grant(self._ttl_s)
                    holder, revision = await self._claim(lease)
                    if holder.lease == lease.id:
                        leadership = Leadership(self._key, holder.create_revision, lease, self._keeper)
                        lease = None
                        return leadership
                    await self._wait_for_vacancy(revision, lease)
                except LeaseNotFound:
                    self._give_up(lease)
                    lease = None
                except EtcdError:
                    await asyncio.sleep(_RETRY_PAUSE_S)
        finally:
            self._give_up(lease)

    async def _claim(self, lease: Lease) -> tuple[KeyValue, int]:
        """Takes the key if it is free; returns its holder either way, so a repeated claim finds its own first one, and the revision."""
        claim = await self._client.txn([absent(self._key)], [put(self._key, self._identity, lease.id), read(self._key)], [read(self._key)])
        return claim.kvs[0], claim.revision

    async def _wait_for_vacancy(self, held_at: int, lease: Lease) -> None:
        # Not from the holder's own revision on: that is history which may be gone.
        async with self._client.watch(self._key, start_revision=held_at + 1) as watch:
            async for events in watch:
                if lease.lost.is_set() or any(event.deleted for event in events):
                    return

    def _give_up(self, lease: Lease | None) -> None:
        if lease is not None:
            self._keeper.forget(lease)
