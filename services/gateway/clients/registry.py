"""Keys, tenants, deployments and replicas as the gateway needs them, from live views of the registry."""

import asyncio
from collections.abc import Mapping

from inferway.common.v1 import registry_pb2
from services.gateway.keys import StoredKey
from services.kit import keyspace
from services.kit.etcd import EtcdClient
from services.kit.registry import Change, PrefixView, RegistryMetrics


class RegistryKeys:
    """A KeyStore over two prefixes. Made inside the running event loop."""

    def __init__(self, client: EtcdClient, metrics: RegistryMetrics) -> None:
        self._keys = PrefixView(client, keyspace.api_keys(), registry_pb2.ApiKey, metrics=metrics)
        self._tenants = PrefixView(client, keyspace.tenants(), registry_pb2.Tenant, metrics=metrics)

    @property
    def ready(self) -> bool:
        """See KeyStore."""
        return self._keys.ready and self._tenants.ready

    @property
    def live(self) -> bool:
        """See KeyStore."""
        return self._keys.healthy

    def find_key(self, sha256: str) -> StoredKey | None:
        """See KeyStore."""
        key = self._keys.snapshot().get(keyspace.api_key(sha256))
        if key is None:
            return None
        return StoredKey(sha256, key.key_id, key.tenant_id, frozenset(key.models), key.expires_unix_ms, key.admin)

    def find_cache_salt(self, tenant_id: str) -> bytes | None:
        """See KeyStore."""
        tenant = self._tenants.snapshot().get(keyspace.tenant(tenant_id))
        return None if tenant is None else tenant.cache_salt

    async def wait_ready(self) -> None:
        """Waits until keys and tenants were read once."""
        await self._keys.wait_ready()
        await self._tenants.wait_ready()

    async def run(self) -> None:
        """Follows the registry until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keys.run())
            tasks.create_task(self._tenants.run())


class RegistryFleet:
    """A Fleet over two prefixes. Made inside the running event loop."""

    def __init__(self, client: EtcdClient, metrics: RegistryMetrics) -> None:
        self._deployments = PrefixView(client, keyspace.deployments(), registry_pb2.Deployment, metrics=metrics)
        self._replicas = PrefixView(client, keyspace.replicas(), registry_pb2.Replica, metrics=metrics)
        self._changed = asyncio.Event()
        self._deployments.subscribe(lambda _: self._changed.set())
        self._replicas.subscribe(self._note_replica)

    @property
    def ready(self) -> bool:
        """See Fleet."""
        return self._deployments.ready and self._replicas.ready

    def deployed(self) -> Mapping[str, tuple[str, int]]:
        """See Fleet."""
        return {each.model: (each.model_version, each.generation) for each in self._deployments.snapshot().values()}

    def ready_versions(self) -> Mapping[str, Mapping[str, int]]:
        """See Fleet."""
        found: dict[str, dict[str, int]] = {}
        for replica in self._replicas.snapshot().values():
            if replica.state == registry_pb2.REPLICA_STATE_READY:
                counts = found.setdefault(replica.model, {})
                counts[replica.model_version] = counts.get(replica.model_version, 0) + 1
        return found

    async def changed(self) -> None:
        """See Fleet."""
        if not self.ready:
            await self._deployments.wait_ready()
            await self._replicas.wait_ready()
        else:
            await self._changed.wait()
        self._changed.clear()

    async def run(self) -> None:
        """Follows the registry until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deployments.run())
            tasks.create_task(self._replicas.run())

    def _note_replica(self, change: Change[registry_pb2.Replica]) -> None:
        """Only what changes the answer of `ready_versions` counts: replicas also write other news."""
        if _ready_version(change.before) != _ready_version(change.after):
            self._changed.set()


def _ready_version(replica: registry_pb2.Replica | None) -> str | None:
    return replica.model_version if replica is not None and replica.state == registry_pb2.REPLICA_STATE_READY else None
