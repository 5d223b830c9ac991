"""Composition root of the node agent: every object is built and wired here."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc

from services.engine.node.agent import NodeAgent
from services.engine.node.clients.node_registry import NodeRegistry
from services.engine.node.clients.replica_client import GrpcReplicaClient
from services.engine.node.config import PREFIX, NodeConfig
from services.engine.node.machine import Machine, inspect
from services.engine.node.metrics import NodeMetrics
from services.engine.node.model_cache import cached_models
from services.engine.node.process import ProcessLauncher
from services.engine.node.replica_log import trim_logs
from services.engine.node.slot import SlotLimits, SlotTools
from services.engine.node.timing import SystemTiming
from services.kit import config
from services.kit.etcd import EtcdClient
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings, ServiceState, serve

NAME = "node"

_STORE_INTERVAL_S = 2.0
_LOG_INTERVAL_S = 30.0


async def run(environ: Mapping[str, str] = os.environ, stop: asyncio.Event | None = None) -> None:
    """Serves until SIGTERM. Raises ConfigError before a socket opens."""
    settings = config.load(NodeConfig, PREFIX, environ)
    etcd = EtcdClient(settings.etcd_endpoints, timeout_s=settings.etcd_timeout_s)
    replicas = GrpcReplicaClient(settings.health_timeout_s)
    try:
        await _NodeServer(settings, environ, etcd, replicas, await asyncio.to_thread(inspect, settings)).serve(stop)
    finally:
        await replicas.close()
        await etcd.close()


class _NodeServer:
    def __init__(
        self, settings: NodeConfig, environ: Mapping[str, str], etcd: EtcdClient, replicas: GrpcReplicaClient, machine: Machine
    ) -> None:
        self._settings = settings
        self._etcd = etcd
        self._machine = machine
        self._prometheus = new_registry()
        self._metrics = NodeMetrics(self._prometheus)
        self._registry: NodeRegistry | None = None
        tools = SlotTools(
            launcher=ProcessLauncher(settings, environ),
            client=replicas,
            timing=SystemTiming(),
            limits=_limits(settings),
            on_change=self._report,
            on_end=self._metrics.count_end,
        )
        self._agent = NodeAgent(tools)

    async def serve(self, stop: asyncio.Event | None) -> None:
        await serve(
            _server_settings(self._settings),
            name=NAME,
            registry=self._prometheus,
            register=_register_nothing,
            run=self._run,
            drain=self._agent.shut_down,
            stop=stop,
        )

    async def _run(self, state: ServiceState) -> None:
        address = f"{self._settings.reachable_host}:{state.port}"
        self._registry = registry = NodeRegistry(self._etcd, self._machine, address, self._settings.lease_ttl_s)
        await self._report_models(registry)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(registry.run())
            tasks.create_task(self._agent.run(registry.orders()))
            tasks.create_task(self._follow_store(registry))
            tasks.create_task(self._trim_logs())
            await registry.wait_registered()
            await state.set_ready(True)

    def _report(self) -> None:
        statuses = self._agent.statuses()
        self._metrics.observe(statuses)
        if self._registry is not None:
            self._registry.report(statuses)

    async def _follow_store(self, registry: NodeRegistry) -> None:
        while True:
            await asyncio.sleep(_STORE_INTERVAL_S)
            await self._report_models(registry)

    async def _report_models(self, registry: NodeRegistry) -> None:
        registry.report_models(await asyncio.to_thread(cached_models, Path(self._settings.home)))

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.to_thread(trim_logs, Path(self._settings.home), self._settings.log_max_bytes)
            await asyncio.sleep(_LOG_INTERVAL_S)


def _register_nothing(_server: grpc.aio.Server) -> Sequence[str]:
    """The agent serves its health only; orders come through the registry."""
    return []


def _limits(settings: NodeConfig) -> SlotLimits:
    return SlotLimits(
        ready_timeout_s=settings.replica_ready_timeout_s,
        unhealthy_timeout_s=settings.replica_unhealthy_timeout_s,
        health_interval_s=settings.health_interval_s,
        kill_grace_s=settings.replica_kill_grace_s,
    )


def _server_settings(settings: NodeConfig) -> ServerSettings:
    return ServerSettings(
        host=settings.host,
        port=settings.port,
        metrics_port=settings.metrics_port,
        drain_timeout_s=settings.drain_timeout_s,
        log_level=settings.log_level,
        otlp_endpoint=settings.otlp_endpoint,
        trace_sample_ratio=settings.trace_sample_ratio,
    )
