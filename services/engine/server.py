"""Composition root of the engine: builds one replica, wires its parts and runs it."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import grpc
from prometheus_client import CollectorRegistry

from inferway.common.v1 import registry_pb2
from inferway.engine.v1 import engine_pb2, engine_pb2_grpc
from services.engine.attempt_spans import AttemptSpans
from services.engine.attempts import AttemptRules
from services.engine.batcher import BatchLimits
from services.engine.clients import ReplicaEntry, UsageRecorder
from services.engine.config import EngineConfig
from services.engine.engine import Engine, EngineLimits, Phase
from services.engine.inbox import Inbox
from services.engine.mesh import Mesh
from services.engine.metrics import EngineMetrics, LoadCollector
from services.engine.reports import Reports
from services.engine.runner import ModelInfo, ModelRunner, RunnerSettings
from services.engine.runner_registry import make_runner
from services.engine.servicer import EngineServicer
from services.engine.step_loop import StepLoop
from services.engine.token_bytes import TokenBytes
from services.engine.watchdog import Watchdog, WatchdogBounds
from services.kit.clock import SystemClock
from services.kit.errors import ConfigError, InferwayError
from services.kit.metrics import new_registry
from services.kit.model_store import ModelStore, ModelVersion
from services.kit.server import ServerSettings, ServiceState, serve
from services.kit.tracing import Tracer, open_tracer

log = logging.getLogger(__name__)

SERVICE = "inferway.engine.v1.Engine"
LONG_STREAMS = ("Session", "WatchLoad", "WatchKvEvents")
MAX_REPORTS = 256
HEALTH_INTERVAL_S = 0.25
FLUSH_TIMEOUT_S = 5.0
JOIN_TIMEOUT_S = 10.0


async def serve_replica(config: EngineConfig, stop: asyncio.Event | None = None) -> None:
    """Serve one replica until SIGTERM or `stop`. Raises ConfigError when it cannot start as configured."""
    try:
        version = ModelStore(Path(config.home)).get(config.model, config.model_version)
        vocabulary = TokenBytes.of(version)
    except InferwayError as error:
        raise ConfigError(error.message) from error
    registry = new_registry()
    mesh = Mesh(config, registry)
    tracer = open_tracer("engine", config.otlp_endpoint, config.trace_sample_ratio)
    replica = Replica(config, version, vocabulary, mesh, registry, tracer=tracer)
    try:
        await serve(
            _server_settings(config),
            name="engine",
            registry=registry,
            register=replica.register,
            run=replica.run,
            drain=replica.stop,
            stop=stop,
            tracer=tracer,
            long_streams=LONG_STREAMS,
        )
    except ExceptionGroup as group:
        raise _start_error(group) from group
    finally:
        await mesh.close()


class Replica:
    """One replica with all its parts. Lives in the event loop."""

    def __init__(
        self,
        config: EngineConfig,
        version: ModelVersion,
        vocabulary: TokenBytes,
        mesh: Mesh,
        registry: CollectorRegistry,
        make_runner: Callable[[str, RunnerSettings], ModelRunner] = make_runner,
        tracer: Tracer | None = None,
    ) -> None:
        self._config = config
        self._make_runner = make_runner
        self._mesh = mesh
        self._clock = SystemClock()
        self._loop = asyncio.get_running_loop()
        replica_id = config.replica_id or f"replica-{uuid.uuid4().hex[:8]}"
        self._entry = ReplicaEntry(_replica(config, version, replica_id))
        self._inbox = Inbox(config.max_num_sequences + config.max_num_waiting)
        self._reports = Reports(MAX_REPORTS, self._announce_reports)
        self._steps = StepLoop(self._load_runner, self._batch_limits, self._inbox, self._reports)
        metrics = EngineMetrics(registry, version.name)
        self.engine = Engine(
            _rules(config, version),
            _limits(config),
            vocabulary,
            self._inbox,
            self._reports,
            UsageRecorder(mesh.outbox, replica_id, version.name, version.version),
            metrics if tracer is None else AttemptSpans(tracer, metrics),
            self._clock,
            self._steps.heartbeat_age_s,
        )
        bounds = WatchdogBounds(config.heartbeat_bound_s, config.heartbeat_exit_s)
        self._watchdog = Watchdog(self._steps, lambda: self.engine.has_work, bounds, self._clock)
        registry.register(LoadCollector(self.engine.load, version.name, config.block_size))
        self._info = _info(self._entry.replica, version)
        self._servicer = EngineServicer(self.engine, vocabulary, self._info, self.drain)

    def register(self, server: grpc.aio.Server) -> Sequence[str]:
        """Add the servicer; returns its full name."""
        engine_pb2_grpc.add_EngineServicer_to_server(self._servicer, server)
        return [SERVICE]

    async def run(self, state: ServiceState) -> None:
        """Load the model, become ready, serve until cancelled. Raises when the step loop ends or hangs: its sequences are lost."""
        self._entry.replica.address = f"{self._config.advertised_host or self._config.host}:{state.port}"
        self._steps.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.engine.run())
                tasks.create_task(self._servicer.run())
                tasks.create_task(self._watch_step_loop())
                tasks.create_task(self._become_ready())
                tasks.create_task(self._show_health(state))
                tasks.create_task(self._mesh.run(self._entry))
        finally:
            self._inbox.close()
            self._reports.close()
            await asyncio.to_thread(self._steps.join, 0.0 if self._watchdog.has_given_up else JOIN_TIMEOUT_S)

    async def drain(self, timeout_s: float) -> int:
        """Take no more work, let running work end, and give its records time to leave; returns how many attempts were cut off."""
        self._entry.show(Phase.DRAINING, self._clock.unix_ms())
        num_aborted = await self.engine.drain(timeout_s)
        await self._mesh.flush(FLUSH_TIMEOUT_S)
        return num_aborted

    async def stop(self, timeout_s: float) -> None:
        """Drain, then end the streams of gateways and routers."""
        await self.drain(timeout_s)
        self.engine.close()

    def _load_runner(self) -> ModelRunner:
        return self._make_runner(self._config.runner, self._config.runner_settings)

    def _batch_limits(self, info: ModelInfo) -> BatchLimits:
        config = self._config
        max_drafts = config.speculative_tokens if info.can_verify_drafts else 0
        if max_drafts < config.speculative_tokens:
            log.info("speculation is off: the runner's numbers might differ with it", extra={"fields": {"runner": info.quality}})
        return BatchLimits(config.max_num_sequences, config.max_step_tokens, config.max_num_waiting, info.max_context_tokens, max_drafts)

    def _announce_reports(self) -> None:
        with suppress(RuntimeError):  # The event loop is closed: nobody reads any more.
            self._loop.call_soon_threadsafe(self.engine.has_reports.set)

    async def _watch_step_loop(self) -> None:
        await asyncio.wrap_future(self._steps.ended)
        raise RuntimeError("the step loop has ended")

    async def _become_ready(self) -> None:
        model = await asyncio.wrap_future(self._steps.loaded)
        self._info.runner = self._entry.replica.runner = f"{self._config.runner}: {model.quality}"
        await self.engine.answer_probe()
        if self.engine.phase is Phase.STARTING:
            self.engine.phase = Phase.READY
            self._entry.show(Phase.READY, self._clock.unix_ms())

    async def _show_health(self, state: ServiceState) -> None:
        while True:
            is_alive = self._watchdog.check()
            await state.set_ready(self.engine.phase is Phase.READY and is_alive)
            await asyncio.sleep(HEALTH_INTERVAL_S)


def _start_error(error: Exception) -> Exception:
    """The first cause in a tree of groups; one of our own kind (a bad model, a device that is not there) names what to correct."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return ConfigError(error.message) if isinstance(error, InferwayError) else error


def _server_settings(config: EngineConfig) -> ServerSettings:
    return ServerSettings(
        host=config.host,
        port=config.port,
        metrics_port=config.metrics_port,
        drain_timeout_s=config.drain_timeout_s,
        log_level=config.log_level,
        otlp_endpoint=config.otlp_endpoint,
        trace_sample_ratio=config.trace_sample_ratio,
    )


def _max_context_tokens(config: EngineConfig, version: ModelVersion) -> int:
    """What one sequence can have at most: the last token of an answer is never computed, so it needs no place in the pool."""
    return min(version.max_context_tokens, config.num_blocks * config.block_size)


def _limits(config: EngineConfig) -> EngineLimits:
    max_attempts = 2 * (config.max_num_sequences + config.max_num_waiting)
    return EngineLimits(config.num_blocks, config.max_num_sequences, max_attempts, config.message_gap_ms / 1000)


def _rules(config: EngineConfig, version: ModelVersion) -> AttemptRules:
    return AttemptRules(version.name, version.vocab_size, _max_context_tokens(config, version))


def _replica(config: EngineConfig, version: ModelVersion, replica_id: str) -> registry_pb2.Replica:
    return registry_pb2.Replica(
        replica_id=replica_id,
        model=version.name,
        model_version=version.version,
        metrics_address=f"{config.advertised_host or config.host}:{config.metrics_port}" if config.metrics_port else "",
        node_id=config.node_id,
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        max_num_sequences=config.max_num_sequences,
        max_context_tokens=_max_context_tokens(config, version),
        incarnation=str(uuid.uuid4()),
        runner=config.runner,
    )


def _info(replica: registry_pb2.Replica, version: ModelVersion) -> engine_pb2.GetInfoResponse:
    return engine_pb2.GetInfoResponse(
        replica_id=replica.replica_id,
        model=replica.model,
        model_version=replica.model_version,
        vocab_size=version.vocab_size,
        max_context_tokens=replica.max_context_tokens,
        block_size=replica.block_size,
        num_blocks=replica.num_blocks,
        runner=replica.runner,
        incarnation=replica.incarnation,
    )
