"""What operators do: make tenants and keys, list them, revoke keys."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from services.gateway import ids
from services.kit.clock import Clock
from services.kit.errors import AlreadyExists, FieldError, NotFound

_TENANT_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_MODEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_MAX_NAME = 200
_MAX_MODELS = 1000
_SALT_BYTES = 32
_DEFAULT_PAGE, _MAX_PAGE = 100, 1000


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant as stored; the salt never leaves the service."""

    tenant_id: str
    display_name: str
    cache_salt: bytes
    created_unix_ms: int


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as stored; `models` empty means all, `expires_unix_ms` 0 means never."""

    key_id: str
    tenant_id: str
    display_name: str
    models: tuple[str, ...]
    expires_unix_ms: int
    created_unix_ms: int
    admin: bool


class AdminStore(Protocol):
    """The registry's side of it. Every method may raise an Unavailable when the registry is away."""

    async def create_tenant(self, tenant: TenantRecord) -> bool:
        """False when the id is taken."""

    async def tenants(self) -> list[TenantRecord]:
        """All tenants, in any order."""

    async def create_key(self, sha256: str, key: KeyRecord) -> bool:
        """False when the tenant does not exist."""

    async def keys(self) -> list[KeyRecord]:
        """All keys, in any order."""

    async def delete_key(self, key_id: str) -> bool:
        """False when there is no such key."""


Record = TypeVar("Record", TenantRecord, KeyRecord)


class AdminDesk:
    """Checks what operators ask for and has the store do it."""

    def __init__(self, store: AdminStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create_tenant(self, tenant_id: str, display_name: str) -> TenantRecord:
        """A new tenant; ALREADY_EXISTS when the id is taken."""
        if not _TENANT_ID.fullmatch(tenant_id):
            raise FieldError("tenant_id", "tenant_id must be 1 to 64 characters of a-z, 0-9 and -, and start with a letter or digit")
        _check_name(display_name)
        tenant = TenantRecord(tenant_id, display_name, secrets.token_bytes(_SALT_BYTES), self._clock.unix_ms())
        if not await self._store.create_tenant(tenant):
            raise AlreadyExists(f"the tenant {tenant_id} exists already")
        return tenant

    async def list_tenants(self, page_size: int | None, page_token: str) -> tuple[list[TenantRecord], str]:
        """One page by id, and the token of the next, "" at the end."""
        tenants = sorted(await self._store.tenants(), key=lambda tenant: tenant.tenant_id)
        return _page(tenants, [tenant.tenant_id for tenant in tenants], page_size, page_token)

    async def create_key(
        self, tenant_id: str, display_name: str, models: Sequence[str], expires_unix_ms: int | None, admin: bool
    ) -> tuple[KeyRecord, str]:
        """A new key and its secret, which is kept nowhere; NOT_FOUND when there is no such tenant."""
        now = self._clock.unix_ms()
        _check_name(display_name)
        _check_models(models)
        if expires_unix_ms is not None and expires_unix_ms <= now:
            raise FieldError("expires_unix_ms", "expires_unix_ms must lie in the future")
        if not _TENANT_ID.fullmatch(tenant_id):
            raise FieldError("tenant_id", "tenant_id is not the id of a tenant")
        secret = ids.new_secret()
        key = KeyRecord(ids.new_key_id(), tenant_id, display_name, tuple(models), expires_unix_ms or 0, now, admin)
        if not await self._store.create_key(ids.secret_sha256(secret), key):
            raise NotFound(f"there is no tenant {tenant_id}")
        return key, secret

    async def list_keys(self, tenant_id: str, page_size: int | None, page_token: str) -> tuple[list[KeyRecord], str]:
        """One page by key id, of one tenant or of all when `tenant_id` is empty, and the token of the next page."""
        keys = [key for key in await self._store.keys() if not tenant_id or key.tenant_id == tenant_id]
        keys.sort(key=lambda key: key.key_id)
        return _page(keys, [key.key_id for key in keys], page_size, page_token)

    async def revoke_key(self, key_id: str) -> None:
        """Ends a key; NOT_FOUND when there is none, also when it was revoked before."""
        if not await self._store.delete_key(key_id):
            raise NotFound(f"there is no key {key_id[:100]!a}")


def _check_name(display_name: str) -> None:
    if len(display_name) > _MAX_NAME:
        raise FieldError("display_name", f"display_name must have at most {_MAX_NAME} characters")


def _check_models(models: Sequence[str]) -> None:
    if len(models) > _MAX_MODELS:
        raise FieldError("models", f"models must hold at most {_MAX_MODELS} names")
    for index, model in enumerate(models):
        if not _MODEL.fullmatch(model):
            raise FieldError(f"models[{index}]", f"models[{index}] is not a model name")


def _page(records: list[Record], sorted_ids: list[str], page_size: int | None, page_token: str) -> tuple[list[Record], str]:
    size = _DEFAULT_PAGE if page_size is None else page_size
    if not 1 <= size <= _MAX_PAGE:
        raise FieldError("page_size", f"page_size must be between 1 and {_MAX_PAGE}")
    begin = next((index for index, name in enumerate(sorted_ids) if name > page_token), len(sorted_ids))
    end = begin + size
    return records[begin:end], sorted_ids[end - 1] if end < len(sorted_ids) else ""
