"""What a replica shares with the rest of the mesh, as far as that is configured: its registry entry and its usage records."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry

from services.engine.clients import ReplicaEntry
from services.engine.config import EngineConfig
from services.kit import keyspace
from services.kit.etcd import EtcdClient, LeaseKeeper
from services.kit.kafka import KafkaProducer
from services.kit.kafka_environ import kafka_settings
from services.kit.outbox_directory import OutboxDirectory
from services.kit.outbox_fleet import OutboxFleet
from services.kit.registration import Registration


class Mesh:
    """Connections to etcd and to the event log, and the outbox that bridges their absence. Made in the running event loop."""

    def __init__(self, config: EngineConfig, registry: CollectorRegistry) -> None:
        directory = OutboxDirectory(Path(config.home) / "outbox" / "engine", max_bytes=config.outbox_max_bytes)
        self._lease_ttl_s = config.lease_ttl_s
        self._client = EtcdClient(config.etcd_endpoints) if config.etcd_endpoints else None
        self._producer = KafkaProducer(kafka_settings(config.kafka_bootstrap, os.environ)) if config.kafka_bootstrap else None
        self._fleet = None
        if self._client is not None and self._producer is not None:
            self._fleet = OutboxFleet(directory, self._producer, self._client, keyspace.watermark, registry=registry)
        self.outbox = self._fleet.own if self._fleet is not None else directory.open_own()

    async def run(self, entry: ReplicaEntry) -> None:
        """Keep the entry in the registry and ship the outbox until cancelled; no state of etcd or broker ends it."""
        async with asyncio.TaskGroup() as tasks:
            if self._client is not None:
                keeper = LeaseKeeper(self._client)
                key = keyspace.replica(entry.replica.model, entry.replica.replica_id)
                registration = Registration(self._client, keeper, key, entry.replica, ttl_s=self._lease_ttl_s)
                entry.publish_to(registration)
                tasks.create_task(keeper.run())
                tasks.create_task(registration.run())
            if self._fleet is not None:
                tasks.create_task(self._fleet.run())

    async def flush(self, timeout_s: float) -> None:
        """Wait until the ledger has all records, but not for long: what is left is shipped by the next process of this machine."""
        if self._fleet is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.outbox.wait_empty()

    async def close(self) -> None:
        """Close everything; nothing may be recorded any more."""
        await self.outbox.close()
        if self._producer is not None:
            await self._producer.close()
        if self._client is not None:
            await self._client.close()
