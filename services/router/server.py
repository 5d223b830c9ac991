"""Builds the router and runs it: the only place where its parts meet."""

from __future__ import annotations

import asyncio

import grpc
from prometheus_client import CollectorRegistry

from inferway.common.v1 import registry_pb2
from inferway.router.v1 import router_pb2, router_pb2_grpc
from services.kit import keyspace
from services.kit.clock import Clock, SystemClock
from services.kit.etcd import EtcdClient
from services.kit.metrics import new_registry
from services.kit.registry import PrefixView, RegistryMetrics
from services.kit.server import ServerSettings, ServiceState, serve
from services.router.admission import Admission
from services.router.alarm import LoopAlarm
from services.router.clients.replica_registry import ReplicaRegistry
from services.router.config import RouterConfig
from services.router.dispatcher import Dispatcher
from services.router.grants import GrantLedger
from services.router.metrics import RouterMetrics
from services.router.replica_view import ReplicaView
from services.router.servicer import RouterServicer

SERVICE_NAME = router_pb2.DESCRIPTOR.services_by_name["Router"].full_name


class Router:
    """All parts of one router, wired."""

    def __init__(self, config: RouterConfig, registry: CollectorRegistry, clock: Clock) -> None:
        self._config = config
        self._registry = registry
        metrics = RouterMetrics(registry)
        ledger = GrantLedger()
        self._alarm = LoopAlarm()
        self.view = ReplicaView(ledger, clock, suspect_hold_s=config.suspect_hold_s)
        self._admission = Admission(self.view, ledger, config.policy(), config.admission_limits(), clock, self._alarm, metrics)
        self.view.subscribe(self._admission.on_change)
        metrics.follow(self.view)
        self._dispatcher = Dispatcher(self._admission, max_backlog=config.max_queue_length)

    def register(self, server: grpc.aio.Server) -> list[str]:
        """Adds the servicer."""
        servicer = RouterServicer(self._dispatcher, self._admission, self.view)
        router_pb2_grpc.add_RouterServicer_to_server(servicer, server)
        return [SERVICE_NAME]

    async def run(self, state: ServiceState) -> None:
        """Owns all background work; ready once the registry has been read."""
        client = EtcdClient(self._config.etcd_endpoints)
        try:
            source = PrefixView(client, keyspace.replicas(), registry_pb2.Replica, metrics=RegistryMetrics(self._registry))
            replicas = ReplicaRegistry(
                source, self.view, linger_s=self._config.unregistered_linger_s, max_silence_s=self._config.max_load_age_s
            )
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._alarm.run(self._admission.expire))
                tasks.create_task(replicas.run())
                await source.wait_ready()
                await state.set_ready(True)
        finally:
            await client.close()

    async def drain(self, timeout_s: float) -> None:
        """Sends the gateways away."""
        await self._dispatcher.drain(timeout_s)


async def run_router(config: RouterConfig, stop: asyncio.Event | None = None) -> None:
    """Serves until the process is told to stop, or ``stop`` is set."""
    registry = new_registry()
    router = Router(config, registry, SystemClock())
    settings = ServerSettings(
        host=config.host,
        port=config.port,
        metrics_port=config.metrics_port,
        drain_timeout_s=config.drain_timeout_s,
        reflection=config.reflection,
        log_level=config.log_level,
        otlp_endpoint=config.otlp_endpoint,
        trace_sample_ratio=config.trace_sample_ratio,
    )
    await serve(
        settings,
        name="router",
        registry=registry,
        register=router.register,
        run=router.run,
        drain=router.drain,
        stop=stop,
        long_streams=("Dispatch",),
    )
