"""What etcd holds and what happens to it, as plain values without generated types."""

from __future__ import annotations

from dataclasses import dataclass

from inferway.etcdwire.v1 import etcd_wire_pb2 as wire


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key at one revision. ``lease`` 0 means no lease; in a delete event only key and mod_revision are set."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0

    @classmethod
    def from_proto(cls, kv: wire.KeyValue) -> KeyValue:
        return cls(kv.key.decode(), kv.value, kv.create_revision, kv.mod_revision, kv.lease)


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one key. ``deleted`` covers a delete and the end of the key's lease alike."""

    deleted: bool
    kv: KeyValue

    @classmethod
    def from_proto(cls, event: wire.Event) -> Event:
        return cls(event.type == wire.Event.EVENT_TYPE_DELETE, KeyValue.from_proto(event.kv))


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys of a prefix as of ``revision`` (of the store); a watch of what follows starts at ``revision + 1``."""

    kvs: tuple[KeyValue, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class TxnResult:
    """Outcome of a transaction: ``succeeded`` tells whether all guards held, ``kvs`` what its reads returned, in order."""

    succeeded: bool
    revision: int
    kvs: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """How one etcd member is: server version, database size in bytes, store revision, and whether it knows a leader."""

    version: str
    db_size_bytes: int
    revision: int
    has_leader: bool


def prefix_end(prefix: bytes) -> bytes:
    """The exclusive end of the range of all keys that start with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        return b"\0"
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
