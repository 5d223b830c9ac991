"""Failures of the etcd client, by what the caller can do about them."""

from __future__ import annotations

import grpc
from grpc import aio

from services.kit.errors import Unavailable

_STALE_TOKEN_TEXTS = ("PermissionDenied", "permission denied", "invalid auth token", "revision of auth store is old", "Unauthenticated")
_GONE = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
    }
)
_REFUSED = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


class EtcdError(Unavailable):
    """Root of what the etcd client raises. ``details`` is etcd's own text (no value of any key is in it)."""

    def __init__(self, details: str) -> None:
        super().__init__(f"etcd: {details}")
        self.details = details


class EtcdUnavailable(EtcdError):
    """No answer from etcd: a write that ends like this may or may not have been carried out, so it must be guarded to be repeated.

    A missing or wrong client certificate shows up here too ("Tls handshake failed"): show ``details`` in health messages.
    """


class EtcdRefused(EtcdError):
    """etcd answered with an error: nothing was carried out. ``unauthorised`` tells that a new token may help."""

    code = "INTERNAL"
    default_reason = "INTERNAL"

    def __init__(self, details: str, *, unauthorised: bool = False) -> None:
        super().__init__(details)
        self.unauthorised = unauthorised


class LeaseNotFound(EtcdError):
    """The lease has expired or was revoked: grant a new one and write its keys again."""


class Compacted(EtcdError):
    """The history from the wanted revision on is gone: list again, compare with what is known, watch from the new revision.

    ``revision`` is the lowest revision that can still be watched, 0 when etcd does not say.
    """

    def __init__(self, revision: int, details: str = "required revision has been compacted") -> None:
        super().__init__(details)
        self.revision = revision


def from_rpc_error(error: aio.AioRpcError) -> EtcdError:
    """The client error for a gRPC error."""
    details = error.details() or error.code().name
    if error.code() == grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
        return Compacted(0)
    if error.code() == grpc.StatusCode.NOT_FOUND and "lease not found" in details:
        return LeaseNotFound(details)
    if error.code() in _GONE:
        return EtcdUnavailable(details)
    return EtcdRefused(details, unauthorised=error.code() in _REFUSED or _mentions_stale_token(details))


def from_cancel_reason(reason: str, compact_revision: int) -> EtcdError:
    """The client error for a watch that the server ended on an OK stream."""
    if compact_revision:
        return Compacted(compact_revision)
    if _mentions_stale_token(reason):
        return EtcdRefused(reason, unauthorised=True)
    return EtcdUnavailable(reason or "watch ended by the server")


def is_stale_token(error: EtcdError) -> bool:
    """True when fetching a new token may help."""
    return isinstance(error, EtcdRefused) and error.unauthorised


def _mentions_stale_token(details: str) -> bool:
    return any(text in details for text in _STALE_TOKEN_TEXTS)
