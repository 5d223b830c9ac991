"""The calls of etcd's API that the client makes, by service path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from inferway.etcdwire.v1 import etcd_wire_pb2 as wire

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ResponseT]):
    """One RPC: its path and how its messages become bytes. ``idempotent`` calls are tried again at the next endpoint."""

    path: str
    request: type[RequestT]
    response: type[ResponseT]
    idempotent: bool = False

    @property
    def serialize(self) -> Callable[[RequestT], bytes]:
        return self.request.SerializeToString

    @property
    def parse(self) -> Callable[[bytes], ResponseT]:
        return self.response.FromString


RANGE = Method("/etcdserverpb.KV/Range", wire.RangeRequest, wire.RangeResponse, idempotent=True)
TXN = Method("/etcdserverpb.KV/Txn", wire.TxnRequest, wire.TxnResponse)
PUT = Method("/etcdserverpb.KV/Put", wire.PutRequest, wire.PutResponse)
DELETE = Method("/etcdserverpb.KV/DeleteRange", wire.DeleteRangeRequest, wire.DeleteRangeResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", wire.CompactionRequest, wire.CompactionResponse)
GRANT = Method("/etcdserverpb.Lease/LeaseGrant", wire.LeaseGrantRequest, wire.LeaseGrantResponse)
REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", wire.LeaseRevokeRequest, wire.LeaseRevokeResponse)
KEEP_ALIVE = Method("/etcdserverpb.Lease/LeaseKeepAlive", wire.LeaseKeepAliveRequest, wire.LeaseKeepAliveResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", wire.WatchRequest, wire.WatchResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", wire.AuthenticateRequest, wire.AuthenticateResponse, idempotent=True)
STATUS = Method("/etcdserverpb.Maintenance/Status", wire.StatusRequest, wire.StatusResponse, idempotent=True)
