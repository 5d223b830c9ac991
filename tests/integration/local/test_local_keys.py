"""The keys of a fresh mesh: only their digest reaches the registry, and a revoked one never comes back."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf import json_format

from deploy.local import local_keys
from deploy.local.home import Home
from inferway.common.v1 import registry_pb2
from services.kit import keyspace
from services.kit.etcd import EtcdClient
from tests.harness.etcd import EtcdServer


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[EtcdClient]:
    server = EtcdServer(tmp_path / "etcd")
    await server.start()
    client = EtcdClient([server.endpoint])
    try:
        yield client
    finally:
        await client.close()
        server.kill()


def path_of(secret: str) -> str:
    return keyspace.api_key(hashlib.sha256(secret.encode()).hexdigest())


async def stored(registry: EtcdClient, secret: str) -> registry_pb2.ApiKey:
    found = await registry.get(path_of(secret))
    assert found is not None
    return json_format.Parse(found.value, registry_pb2.ApiKey())


async def test_ensure_makes_a_demo_key_and_an_operators_key(registry: EtcdClient, home: Home) -> None:
    keys = await local_keys.ensure(registry, home)

    demo, operator = await stored(registry, keys.demo), await stored(registry, keys.operator)
    assert (demo.tenant_id, demo.admin) == ("demo", False)
    assert (operator.tenant_id, operator.admin) == ("operator", True)
    assert await registry.get(keyspace.tenant("demo")) is not None
    assert home.demo_key_file.stat().st_mode & 0o777 == 0o600


async def test_ensure_leaves_no_secret_in_the_registry(registry: EtcdClient, home: Home) -> None:
    keys = await local_keys.ensure(registry, home)

    listing = await registry.get_prefix(keyspace.ROOT)
    everything = "".join(f"{kv.key}{kv.value!r}" for kv in listing.kvs)
    assert keys.demo not in everything and keys.operator not in everything


async def test_ensure_a_second_time_gives_the_same_keys_and_keeps_the_cache_salt(registry: EtcdClient, home: Home) -> None:
    first, tenant = await local_keys.ensure(registry, home), await registry.get(keyspace.tenant("demo"))

    assert await local_keys.ensure(registry, home) == first
    assert await registry.get(keyspace.tenant("demo")) == tenant


async def test_ensure_after_a_revocation_makes_a_new_key(registry: EtcdClient, home: Home) -> None:
    first = await local_keys.ensure(registry, home)
    await registry.delete(path_of(first.demo))

    second = await local_keys.ensure(registry, home)

    assert second.demo != first.demo and second.operator == first.operator
    assert await registry.get(path_of(first.demo)) is None
    assert local_keys.read_key(home.demo_key_file) == second.demo
