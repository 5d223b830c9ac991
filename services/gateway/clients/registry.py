"""Keys, tenants and deployments as the gateway needs them, from live views of the registry."""

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


class RegistryDeployments:
    """Deployments over one prefix. Made inside the running event loop."""

    def __init__(self, client: EtcdClient, metrics: RegistryMetrics) -> None:
        self._view = PrefixView(client, keyspace.deployments(), registry_pb2.Deployment, metrics=metrics)
        self._changed = asyncio.Event()
        self._view.subscribe(self._note)

    @property
    def ready(self) -> bool:
        """See Deployments."""
        return self._view.ready

    def versions(self) -> Mapping[str, tuple[str, int]]:
        """See Deployments."""
        return {deployment.model: (deployment.model_version, deployment.generation) for deployment in self._view.snapshot().values()}

    async def changed(self) -> None:
        """See Deployments."""
        if not self._view.ready:
            await self._view.wait_ready()
        else:
            await self._changed.wait()
        self._changed.clear()

    async def run(self) -> None:
        """Follows the registry until cancelled."""
        await self._view.run()

    def _note(self, _: Change[registry_pb2.Deployment]) -> None:
        self._changed.set()
