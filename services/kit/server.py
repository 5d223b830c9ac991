"""Runs one service: interceptors, health, reflection, metrics, readiness, and a drain on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from services.kit import interceptors, logs, tracing
from services.kit.channel import MAX_MESSAGE_BYTES
from services.kit.errors import ConfigError
from services.kit.metrics import MetricsServer, RpcMetrics
from services.kit.tracing import Tracer

log = logging.getLogger(__name__)

MAX_METADATA_BYTES = 80 * 1024

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Envoy passes 60 KiB of headers on; by default gRPC refuses what is above 8 KiB, half of it by lot, as RESOURCE_EXHAUSTED.
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    # Clients ping idle connections every 10 s; the default rules would answer with GOAWAY "too many pings".
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # A client that is silent for 15 s is gone: what it holds (a gateway's grants and sequences) is free again. By default that takes hours.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    # A second process on the same port must fail at once instead of stealing half of the connections.
    ("grpc.so_reuseport", 0),
)


# What is still open after the drain is nobody's work: health watches and the like.
AFTER_DRAIN_S = 1.0


@dataclass(frozen=True)
class ServerSettings:
    """Where a service listens. Port 0 lets the system choose; metrics_port None switches metrics off."""

    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int | None = None
    drain_timeout_s: float = 30.0
    reflection: bool = False
    log_level: str = "INFO"
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 0.05


class ServiceState:
    """What a running service can say about itself: its port and whether it is ready."""

    def __init__(self, servicer: health.aio.HealthServicer, names: Sequence[str], port: int) -> None:
        self._health = servicer
        self._names = names
        self._draining = False
        self._told: bool | None = None
        self.port = port

    async def set_ready(self, ready: bool) -> None:
        """Answers SERVING or NOT_SERVING to grpc.health.v1; while draining it stays NOT_SERVING."""
        serving = ready and not self._draining
        if serving == self._told:  # Replicas say so four times a second.
            return
        self._told = serving
        value = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._names):
            await self._health.set(name, value)

    async def start_draining(self) -> None:
        """NOT_SERVING from now on."""
        self._draining = True
        await self.set_ready(False)


Register = Callable[[grpc.aio.Server], Sequence[str]]
Run = Callable[[ServiceState], Coroutine[None, None, None]]
Drain = Callable[[float], Awaitable[None]]


async def serve(
    settings: ServerSettings,
    *,
    name: str,
    registry: CollectorRegistry,
    register: Register,
    run: Run,
    drain: Drain | None = None,
    before_scrape: Callable[[], None] | None = None,
    stop: asyncio.Event | None = None,
    tracer: Tracer | None = None,
    long_streams: Collection[str] = (),
) -> None:
    """Serves until SIGTERM, SIGINT or `stop`; returns after a clean drain.

    `register` adds servicers and returns their full names. `run` owns every background task of the service and tells
    readiness through the state; when it returns or raises before the stop, so does serve. `drain(timeout_s)` lets work
    finish after health went NOT_SERVING and before the server closes; without it every open call has the timeout to end.
    `tracer` replaces the one of the settings and is closed here; `long_streams` names methods that get no spans.
    Raises ConfigError when a port is taken.
    """
    logs.set_up(name, settings.log_level)
    tracer = tracer or tracing.open_tracer(name, settings.otlp_endpoint, settings.trace_sample_ratio)
    server = grpc.aio.server(interceptors=interceptors.server_interceptors(RpcMetrics(registry), tracer, long_streams), options=_OPTIONS)
    state = await _open(server, settings, register)
    exporter = _start_metrics(settings, registry, before_scrape)
    await server.start()
    log.info("%s listens", name, extra={"fields": {"port": state.port}})
    background = asyncio.ensure_future(run(state))
    try:
        await _first_of(background, stop or _stop_on_signals())
        await state.start_draining()
        if drain is None:
            await server.stop(settings.drain_timeout_s)
        else:
            await drain(settings.drain_timeout_s)
            await server.stop(AFTER_DRAIN_S)
    finally:
        await server.stop(0)
        await _end(background)
        await _shut_down(exporter, tracer)
    log.info("%s has stopped", name)


def main(entry: Callable[[], Coroutine[None, None, None]], *, starts_processes: bool = False) -> None:
    """Runs a service's entry point on uvloop; a ConfigError becomes one message on stderr and exit code 2.

    One that starts processes runs on asyncio's own loop: uvloop forks for them, and gRPC's handlers of forks crash now and then.
    """
    # What is imported lives as long as the process: a collection that looks through it stops every stream for some 50 ms.
    gc.freeze()
    try:
        (asyncio.run if starts_processes else uvloop.run)(entry())
    except ConfigError as error:
        print(f"cannot start:\n{error.message}", file=sys.stderr)
        sys.exit(2)


async def _open(server: grpc.aio.Server, settings: ServerSettings, register: Register) -> ServiceState:
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names = list(register(server))
    if settings.reflection:
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    address = f"{settings.host}:{settings.port}"
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}: is another process on this port? ({error})") from error
    state = ServiceState(servicer, names, port)
    await state.set_ready(False)
    return state


def _start_metrics(settings: ServerSettings, registry: CollectorRegistry, before_scrape: Callable[[], None] | None) -> MetricsServer | None:
    if settings.metrics_port is None:
        return None
    try:
        exporter = MetricsServer(registry, settings.host, settings.metrics_port, before_scrape)
    except OSError as error:
        raise ConfigError(f"cannot listen on {settings.host}:{settings.metrics_port} for metrics: {error.strerror}") from error
    exporter.start()
    return exporter


def _stop_on_signals() -> asyncio.Event:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    return stop


async def _first_of(background: asyncio.Future[None], stop: asyncio.Event) -> None:
    """Waits for the stop; raises when the background work ends before it."""
    background.add_done_callback(lambda _: stop.set())
    await stop.wait()
    if background.done():
        background.result()
        raise RuntimeError("the background work of the service ended by itself")


async def _end(background: asyncio.Future[None]) -> None:
    background.cancel()
    await asyncio.wait({background})
    if not background.cancelled() and (error := background.exception()) is not None:
        log.error("the background work ended with an error", exc_info=error)


async def _shut_down(exporter: MetricsServer | None, tracer: Tracer | None) -> None:
    if exporter is not None:
        exporter.stop()
    if tracer is not None:
        await asyncio.to_thread(tracer.close)
