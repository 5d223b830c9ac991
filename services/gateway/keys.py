"""Turns the credentials of a call into an identity, from a live copy of the keys in the registry."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.gateway import ids
from services.kit.clock import Clock
from services.kit.errors import PermissionDenied, Unauthenticated, Unavailable

_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class StoredKey:
    """One key as the registry holds it. `models` empty: all; `expires_unix_ms` 0: never; `tenant_id` "": an operator without tenant."""

    sha256: str
    key_id: str
    tenant_id: str
    models: frozenset[str]
    expires_unix_ms: int
    admin: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. `cache_salt` is a secret of the tenant."""

    tenant_id: str
    key_id: str
    models: frozenset[str]
    admin: bool
    cache_salt: bytes

    def can_use(self, model: str) -> bool:
        """Whether the key may use the model."""
        return not self.models or model in self.models


class KeyStore(Protocol):
    """The live copy of keys and tenants."""

    @property
    def ready(self) -> bool:
        """True once everything was read."""

    @property
    def live(self) -> bool:
        """True while the copy follows the registry; then what it does not hold does not exist."""

    def find_key(self, sha256: str) -> StoredKey | None:
        """The key whose secret has this SHA-256, in hex."""

    def find_cache_salt(self, tenant_id: str) -> bytes | None:
        """The cache salt of a tenant; None when the tenant is not there."""


class Keys:
    """Authenticates. Answers come from memory: a revoked key stops as soon as the registry's watch says so, on open connections too."""

    def __init__(self, store: KeyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def authenticate(self, authorization: Sequence[str]) -> Identity:
        """The identity behind the values of all Authorization headers of a call.

        MISSING_API_KEY or INVALID_API_KEY (401) when there is none, more than one, or one that is malformed, unknown, expired or revoked;
        KEY_STORE_UNAVAILABLE (503) when that cannot be told now. Messages never repeat the key.
        """
        if not self._store.ready:
            raise _unavailable()
        key = self._find(_bearer(authorization))
        if key.expires_unix_ms and self._clock.unix_ms() >= key.expires_unix_ms:
            raise _invalid()
        salt = self._store.find_cache_salt(key.tenant_id) if key.tenant_id else b""
        if salt is None:
            # Keys and tenants are two watches: the key can be here a moment before its tenant.
            raise _unavailable()
        return Identity(key.tenant_id, key.key_id, key.models, key.admin, salt)

    def authenticate_admin(self, authorization: Sequence[str]) -> Identity:
        """As authenticate, for operators only: PERMISSION_DENIED for everybody else."""
        identity = self.authenticate(authorization)
        if not identity.admin:
            raise PermissionDenied("this key has no operator rights")
        return identity

    def authenticate_tenant(self, authorization: Sequence[str]) -> Identity:
        """As authenticate, for callers that can pay: PERMISSION_DENIED for an operator's key without a tenant."""
        identity = self.authenticate(authorization)
        if not identity.tenant_id:
            raise PermissionDenied("this operator key belongs to no tenant; use a key of the tenant that pays")
        return identity

    def _find(self, secret: str) -> StoredKey:
        digest = ids.secret_sha256(secret)
        key = self._store.find_key(digest)
        if key is None:
            # A copy that has lost touch may just not know the key yet.
            raise _invalid() if self._store.live else _unavailable()
        if not hmac.compare_digest(key.sha256, digest):
            raise _invalid()
        return key


def _bearer(authorization: Sequence[str]) -> str:
    if not authorization:
        raise Unauthenticated("no API key was sent; send the header Authorization: Bearer <key>", reason="MISSING_API_KEY")
    if len(authorization) > 1:
        raise _invalid()
    scheme, _, secret = authorization[0].partition(" ")
    if scheme.lower() != "bearer" or not ids.is_secret(secret):
        raise _invalid()
    return secret


def _invalid() -> Unauthenticated:
    return Unauthenticated("the API key is not valid: it is malformed, unknown, expired or revoked")


def _unavailable() -> Unavailable:
    message = "API keys cannot be checked right now; try again in a moment"
    return Unavailable(message, reason="KEY_STORE_UNAVAILABLE", retry_after_s=_RETRY_AFTER_S)
