"""Guards and operations of a guarded write: what makes the retry of an ambiguous write harmless."""

from __future__ import annotations

from inferway.etcdwire.v1 import etcd_wire_pb2 as wire

Guard = wire.Compare
Operation = wire.RequestOp


def absent(key: str) -> Guard:
    """Holds when the key does not exist."""
    return created_at(key, 0)


def created_at(key: str, revision: int) -> Guard:
    """Holds when the key was created at ``revision``: the fencing guard of an elected leader."""
    return Guard(result=Guard.COMPARE_RESULT_EQUAL, target=Guard.COMPARE_TARGET_CREATE, key=key.encode(), create_revision=revision)


def unchanged_since(key: str, mod_revision: int) -> Guard:
    """Holds when the key's last change is ``mod_revision`` (0: the key does not exist)."""
    return Guard(result=Guard.COMPARE_RESULT_EQUAL, target=Guard.COMPARE_TARGET_MOD, key=key.encode(), mod_revision=mod_revision)


def put(key: str, value: bytes, lease: int = 0) -> Operation:
    """Writes the key; ``lease`` 0 means that the key outlives its writer."""
    return Operation(request_put=wire.PutRequest(key=key.encode(), value=value, lease=lease))


def delete(key: str) -> Operation:
    """Deletes the key; no effect when it does not exist."""
    return Operation(request_delete_range=wire.DeleteRangeRequest(key=key.encode()))


def read(key: str) -> Operation:
    """Reads the key; its place in ``TxnResult.kvs`` is taken only when it exists."""
    return Operation(request_range=wire.RangeRequest(key=key.encode()))
