"""The etcd client: typed calls over etcd's public gRPC API."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from inferway.etcdwire.v1 import etcd_wire_pb2 as wire
from services.kit.etcd import methods
from services.kit.etcd.connection import Connection
from services.kit.etcd.txn import Guard, Operation
from services.kit.etcd.values import KeyValue, Listing, MemberStatus, TxnResult, prefix_end
from services.kit.etcd.watch import Watch


class EtcdClient:
    """One client per process, made inside the running event loop.

    ``endpoints`` are "host:port"; the next one is tried when one does not answer. ``credentials`` turn on (m)TLS; with client certificates
    etcd takes the certificate's common name as the user, so ``user`` and ``password`` are for clusters without them.
    Every call has a deadline of ``timeout_s`` for each endpoint tried and raises EtcdError: EtcdUnavailable when there was no answer (a
    write is then ambiguous: repeat it only when guarded), EtcdRefused when etcd said no.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 2.0,
        *,
        user: str = "",
        password: str = "",
    ) -> None:
        self.connection = Connection(endpoints, credentials, timeout_s, user, password)

    async def get(self, key: str) -> KeyValue | None:
        """The key, or None when it does not exist (linearizable)."""
        response = await self.connection.call(methods.RANGE, wire.RangeRequest(key=key.encode()))
        return KeyValue.from_proto(response.kvs[0]) if response.kvs else None

    async def get_prefix(self, prefix: str) -> Listing:
        """All keys that start with ``prefix``, and the store revision at which that was so (linearizable)."""
        start, end = _range(prefix, prefix=True)
        response = await self.connection.call(methods.RANGE, wire.RangeRequest(key=start, range_end=end))
        return Listing(tuple(KeyValue.from_proto(kv) for kv in response.kvs), response.header.revision)

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Writes the key without a guard; returns the store revision of the write."""
        response = await self.connection.call(methods.PUT, wire.PutRequest(key=key.encode(), value=value, lease=lease))
        return response.header.revision

    async def delete(self, key: str, *, prefix: bool = False) -> int:
        """Deletes the key (or all keys that start with it); returns how many there were."""
        start, end = _range(key, prefix=prefix)
        response = await self.connection.call(methods.DELETE, wire.DeleteRangeRequest(key=start, range_end=end))
        return response.deleted

    async def txn(self, guards: Sequence[Guard], success: Sequence[Operation], failure: Sequence[Operation] = ()) -> TxnResult:
        """Carries out ``success`` when all guards hold, else ``failure``, atomically. Guards and operations are made by ``txn.py``."""
        response = await self.connection.call(methods.TXN, wire.TxnRequest(compare=guards, success=success, failure=failure))
        kvs = tuple(KeyValue.from_proto(kv) for answer in response.responses for kv in answer.response_range.kvs)
        return TxnResult(response.succeeded, response.header.revision, kvs)

    async def compact(self, revision: int) -> None:
        """Forgets the history before ``revision``."""
        await self.connection.call(methods.COMPACT, wire.CompactionRequest(revision=revision))

    async def grant(self, ttl_s: int) -> int:
        """Makes a lease of ``ttl_s`` seconds (at least 1; etcd may choose more) and returns its id. LeaseKeeper keeps leases alive."""
        return (await self.connection.call(methods.GRANT, wire.LeaseGrantRequest(ttl=ttl_s))).id

    async def revoke(self, lease: int) -> None:
        """Ends the lease and deletes its keys. Raises LeaseNotFound when it has ended already."""
        await self.connection.call(methods.REVOKE, wire.LeaseRevokeRequest(id=lease))

    async def status(self) -> MemberStatus:
        """How the member in use is."""
        response = await self.connection.call(methods.STATUS, wire.StatusRequest())
        return MemberStatus(response.version, response.db_size, response.header.revision, response.leader != 0)

    def watch(self, key: str, *, prefix: bool = False, start_revision: int = 0) -> Watch:
        """Watches the key (or all keys that start with it) from ``start_revision`` on; 0 means from now on."""
        start, end = _range(key, prefix=prefix)
        return Watch(self.connection, start, end, start_revision)

    async def close(self) -> None:
        """Closes the channels; calls in flight are cancelled."""
        await self.connection.close()


def _range(key: str, *, prefix: bool) -> tuple[bytes, bytes]:
    start = key.encode()
    return (start or b"\0", prefix_end(start)) if prefix else (start, b"")
