"""The tenants and API keys that a fresh mesh gets, so that the printed commands work and the operator's commands may call Admin.

The registry holds only the SHA-256 of a secret. The secret itself is kept in a file that its owner alone can read, so that a second `up`
prints the same key.
"""

import hashlib
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import json_format
from google.protobuf.message import Message

from deploy.local.home import Home, write_atomically
from inferway.common.v1 import registry_pb2
from services.kit import keyspace
from services.kit.etcd import EtcdClient
from services.kit.etcd.txn import absent, put

DEMO_TENANT = "demo"
OPERATOR_TENANT = "operator"
_SALT_BYTES = 32
_SECRET_BYTES = 32


@dataclass(frozen=True)
class LocalKeys:
    """Secrets of the two keys of a local mesh."""

    demo: str
    operator: str


def operator_key_file(home: Home) -> Path:
    """Where the operator's secret is kept."""
    return home.run / "operator-key"


def read_key(file: Path) -> str:
    """The secret in `file`; empty when there is none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


async def ensure(registry: EtcdClient, home: Home) -> LocalKeys:
    """Make tenants and keys that are missing. A key that was revoked is replaced by a new one, never put back."""
    await _ensure_tenant(registry, DEMO_TENANT, "Demo")
    await _ensure_tenant(registry, OPERATOR_TENANT, "Operator of this mesh")
    return LocalKeys(
        demo=await _ensure_key(registry, home.demo_key_file, DEMO_TENANT, "Made by inferway up", admin=False),
        operator=await _ensure_key(registry, operator_key_file(home), OPERATOR_TENANT, "Used by the inferway command", admin=True),
    )


async def _ensure_tenant(registry: EtcdClient, tenant_id: str, display_name: str) -> None:
    tenant = registry_pb2.Tenant(
        tenant_id=tenant_id, display_name=display_name, cache_salt=secrets.token_bytes(_SALT_BYTES), created_unix_ms=_now_ms()
    )
    key = keyspace.tenant(tenant_id)
    await registry.txn([absent(key)], [put(key, _value(tenant))])


async def _ensure_key(registry: EtcdClient, file: Path, tenant_id: str, display_name: str, *, admin: bool) -> str:
    kept = read_key(file)
    if kept and await registry.get(_path(kept)) is not None:
        return kept
    secret = f"ifw-{secrets.token_urlsafe(_SECRET_BYTES)}"
    stored = registry_pb2.ApiKey(
        key_id=f"key_{secrets.token_hex(8)}", tenant_id=tenant_id, display_name=display_name, created_unix_ms=_now_ms(), admin=admin
    )
    write_atomically(file, f"{secret}\n".encode())
    await registry.put(_path(secret), _value(stored))
    return secret


def _path(secret: str) -> str:
    return keyspace.api_key(hashlib.sha256(secret.encode()).hexdigest())


def _value(message: Message) -> bytes:
    return json_format.MessageToJson(message, indent=None).encode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
