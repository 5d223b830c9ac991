"""Tenants and keys in the registry, written with guarded transactions."""

import asyncio
import logging
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from inferway.common.v1 import registry_pb2
from services.gateway import ids
from services.gateway.admin import KeyRecord, TenantRecord
from services.kit import keyspace
from services.kit.clock import Clock
from services.kit.errors import Unavailable
from services.kit.etcd import EtcdClient, EtcdError, txn

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

_RETRY_S = 1.0


class RegistryAdminStore:
    """An AdminStore over etcd."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def create_tenant(self, tenant: TenantRecord) -> bool:
        """See AdminStore."""
        message = registry_pb2.Tenant(
            tenant_id=tenant.tenant_id,
            display_name=tenant.display_name,
            cache_salt=tenant.cache_salt,
            created_unix_ms=tenant.created_unix_ms,
        )
        key = keyspace.tenant(tenant.tenant_id)
        return (await self._client.txn([txn.absent(key)], [txn.put(key, _value(message))])).succeeded

    async def tenants(self) -> list[TenantRecord]:
        """See AdminStore."""
        found = [tenant for _, tenant in await self._list(keyspace.tenants(), registry_pb2.Tenant)]
        return [TenantRecord(t.tenant_id, t.display_name, t.cache_salt, t.created_unix_ms) for t in found]

    async def create_key(self, sha256: str, key: KeyRecord) -> bool:
        """See AdminStore. The tenant has to exist in the same moment."""
        tenant_key, path = keyspace.tenant(key.tenant_id), keyspace.api_key(sha256)
        tenant = await self._client.get(tenant_key)
        if tenant is None:
            return False
        guards = [txn.created_at(tenant_key, tenant.create_revision), txn.absent(path)]
        if not (await self._client.txn(guards, [txn.put(path, _value(_key_message(key)))])).succeeded:
            raise Unavailable("the tenant changed while the key was made; try again", retry_after_s=1.0)
        return True

    async def keys(self) -> list[KeyRecord]:
        """See AdminStore."""
        return [_key_record(key) for _, key in await self._list(keyspace.api_keys(), registry_pb2.ApiKey)]

    async def delete_key(self, key_id: str) -> bool:
        """See AdminStore."""
        found = next((path for path, key in await self._list(keyspace.api_keys(), registry_pb2.ApiKey) if key.key_id == key_id), None)
        return found is not None and await self._client.delete(found) > 0

    async def ensure_operator_key(self, secret: str, clock: Clock) -> None:
        """Makes the record of an operator's key unless it is there. Waits for the registry as long as it takes; logs no secret."""
        path = keyspace.api_key(ids.secret_sha256(secret))
        key = KeyRecord(ids.new_key_id(), "", "Operator key of the start-up file", (), 0, clock.unix_ms(), admin=True)
        while True:
            try:
                result = await self._client.txn([txn.absent(path)], [txn.put(path, _value(_key_message(key)))])
            except EtcdError as error:
                log.warning("the operator key waits for the registry", extra={"fields": {"problem": error.details}})
                await asyncio.sleep(_RETRY_S)
                continue
            log.info("operator key is in place", extra={"fields": {"created": result.succeeded}})
            return

    async def _list(self, prefix: str, message_type: type[M]) -> list[tuple[str, M]]:
        """Paths and messages; what does not parse is logged and left out, so that it stands in nobody's way."""
        found: list[tuple[str, M]] = []
        for kv in (await self._client.get_prefix(prefix)).kvs:
            try:
                found.append((kv.key, json_format.Parse(kv.value, message_type(), ignore_unknown_fields=True)))
            except (json_format.ParseError, UnicodeDecodeError):
                log.error("registry value does not parse and is skipped", extra={"fields": {"key": kv.key}})
        return found


def _key_message(key: KeyRecord) -> registry_pb2.ApiKey:
    return registry_pb2.ApiKey(
        key_id=key.key_id,
        tenant_id=key.tenant_id,
        display_name=key.display_name,
        models=key.models,
        expires_unix_ms=key.expires_unix_ms,
        created_unix_ms=key.created_unix_ms,
        admin=key.admin,
    )


def _key_record(key: registry_pb2.ApiKey) -> KeyRecord:
    return KeyRecord(key.key_id, key.tenant_id, key.display_name, tuple(key.models), key.expires_unix_ms, key.created_unix_ms, key.admin)


def _value(message: Message) -> bytes:
    return json_format.MessageToJson(message, indent=None).encode()
