"""Composition root of the scheduler: every object is built and wired here."""

import asyncio
import os
from collections.abc import Mapping, Sequence

import grpc

from inferway.scheduler.v1 import scheduler_pb2_grpc
from services.kit import config, keyspace
from services.kit.clock import SystemClock
from services.kit.etcd import Election, EtcdClient, EtcdError, LeaseKeeper
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings, ServiceState, serve
from services.scheduler.clients.fleet_store import EtcdFleetStore
from services.scheduler.config import PREFIX, SchedulerConfig
from services.scheduler.desired_state import DesiredState
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.reconcile import Reconciler
from services.scheduler.servicer import ControlPlaneServicer

NAME = "scheduler"
SERVICE = "inferway.scheduler.v1.ControlPlane"

_RETRY_S = 0.2


async def run(environ: Mapping[str, str] = os.environ, stop: asyncio.Event | None = None) -> None:
    """Serves until SIGTERM. Raises ConfigError before a socket opens."""
    settings = config.load(SchedulerConfig, PREFIX, environ)
    client = EtcdClient(settings.etcd_endpoints, timeout_s=settings.etcd_timeout_s)
    try:
        await _serve(settings, client, stop)
    finally:
        await client.close()


async def _serve(settings: SchedulerConfig, client: EtcdClient, stop: asyncio.Event | None) -> None:
    registry, clock, store = new_registry(), SystemClock(), EtcdFleetStore(client)
    keeper = LeaseKeeper(client)
    election = Election(client, keeper, keyspace.leader(NAME), settings.scheduler_id, settings.leader_ttl_s)
    reconciler = Reconciler(
        store, election, clock, SchedulerMetrics(registry), node_grace_s=settings.node_grace_s, resync_s=settings.resync_s
    )
    desired = DesiredState(store, clock, default_drain_timeout_s=settings.default_drain_timeout_s)
    servicer = ControlPlaneServicer(store, desired, clock)

    def register(server: grpc.aio.Server) -> Sequence[str]:
        scheduler_pb2_grpc.add_ControlPlaneServicer_to_server(servicer, server)
        return [SERVICE]

    async def background(state: ServiceState) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keeper.run())
            tasks.create_task(reconciler.run())
            await _until_readable(store)
            await state.set_ready(True)

    await serve(_server_settings(settings), name=NAME, registry=registry, register=register, run=background, stop=stop)


async def _until_readable(store: EtcdFleetStore) -> None:
    """Ready means that the registry has answered once; later outages are answered call by call."""
    while True:
        try:
            await store.read()
            return
        except EtcdError:
            await asyncio.sleep(_RETRY_S)


def _server_settings(settings: SchedulerConfig) -> ServerSettings:
    return ServerSettings(
        host=settings.host,
        port=settings.port,
        metrics_port=settings.metrics_port,
        drain_timeout_s=settings.drain_timeout_s,
        reflection=settings.reflection,
        log_level=settings.log_level,
        otlp_endpoint=settings.otlp_endpoint,
        trace_sample_ratio=settings.trace_sample_ratio,
    )
