"""Builds and wires the gateway: the only place where its objects are made."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from inferway.edge.v1 import admin_pb2_grpc, inference_pb2_grpc, openai_pb2_grpc
from services.gateway.admin import AdminDesk
from services.gateway.admission import Admission
from services.gateway.clients.admin_store import RegistryAdminStore
from services.gateway.clients.dispatch import DispatchLink
from services.gateway.clients.registry import RegistryFleet, RegistryKeys
from services.gateway.clients.sessions import EngineSessions
from services.gateway.clients.usage import UsageOutbox
from services.gateway.config import PREFIX, GatewayConfig
from services.gateway.generation import Generation, GenerationLimits
from services.gateway.keys import Keys
from services.gateway.metrics import GatewayMetrics
from services.gateway.models import Models
from services.gateway.pipeline import Pipeline
from services.gateway.request_log import RequestLog
from services.gateway.request_tasks import RequestTasks
from services.gateway.servicer.admin import AdminServicer
from services.gateway.servicer.inference import InferenceServicer
from services.gateway.servicer.openai import OpenAIServicer
from services.kit import keyspace
from services.kit.channel import connect
from services.kit.clock import SystemClock
from services.kit.config import load
from services.kit.errors import ConfigError
from services.kit.etcd import EtcdClient
from services.kit.kafka import KafkaProducer
from services.kit.kafka_environ import kafka_settings
from services.kit.metrics import new_registry
from services.kit.model_store import ModelStore
from services.kit.outbox_directory import OutboxDirectory
from services.kit.outbox_fleet import OutboxFleet
from services.kit.registry import RegistryMetrics
from services.kit.server import ServerSettings, ServiceState, serve


class Gateway:
    """The running service. Made inside the event loop; `close` ends it after its tasks have ended."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._clock = SystemClock()
        self.registry = new_registry()
        self._operator_key = _read_operator_key(config.bootstrap_admin_key_file)
        self._threads = ThreadPoolExecutor(config.num_tokenizer_threads, thread_name_prefix="tokenizer")
        self._etcd = EtcdClient(config.etcd_endpoints)
        self._admin_store = RegistryAdminStore(self._etcd)
        watched = RegistryMetrics(self.registry)
        self._stored_keys = RegistryKeys(self._etcd, watched)
        self._fleet = RegistryFleet(self._etcd, watched)
        self._producer = KafkaProducer(kafka_settings(config.kafka_bootstrap, os.environ))
        self.outboxes = OutboxFleet(
            OutboxDirectory(Path(config.home) / "outbox" / "gateway", max_bytes=config.usage_outbox_max_bytes),
            self._producer,
            self._etcd,
            keyspace.watermark,
            registry=self.registry,
        )
        self._router = connect(config.router_address)
        self._dispatch = DispatchLink(self._router, config.gateway_id, config.router_away_s)
        self._sessions = EngineSessions(connect, config.gateway_id, config.engine_connect_timeout_s)
        self._keys = Keys(self._stored_keys, self._clock)
        self._models = Models(ModelStore(Path(config.home)), self._fleet, self._threads)
        self._tasks = RequestTasks()
        self._pipeline = self._make_pipeline()

    def _make_pipeline(self) -> Pipeline:
        config = self._config
        records = UsageOutbox(self.outboxes.own, config.usage_topic)
        limits = GenerationLimits(config.max_num_attempts, config.cancel_timeout_s)
        metrics = GatewayMetrics(self.registry)
        self._admission = Admission(records, config.max_num_requests)
        metrics.watch(lambda: self._admission.num_requests, lambda: self._dispatch.connected, lambda: self._sessions.num_open)
        return Pipeline(
            keys=self._keys,
            models=self._models,
            admission=self._admission,
            generation=Generation(self._dispatch, self._sessions, self._clock, limits),
            records=records,
            meter=RequestLog(metrics),
            tokenizer_threads=self._threads,
            tasks=self._tasks,
            clock=self._clock,
            request_deadline_s=config.request_deadline_s,
        )

    @property
    def num_requests(self) -> int:
        """Requests in work."""
        return self._admission.num_requests

    @property
    def num_sessions(self) -> int:
        """Sessions with replicas."""
        return self._sessions.num_open

    @property
    def keys_live(self) -> bool:
        """Whether keys are known and follow the registry."""
        return self._stored_keys.ready and self._stored_keys.live

    @property
    def draining(self) -> bool:
        """Whether new requests are refused."""
        return self._admission.closed

    def register(self, server: grpc.aio.Server) -> Sequence[str]:
        """Adds the faces."""
        openai = OpenAIServicer(self._pipeline, self._keys, self._models, self._config.max_body_bytes)
        openai_pb2_grpc.add_OpenAIServicer_to_server(openai, server)
        inference_pb2_grpc.add_InferenceServicer_to_server(InferenceServicer(self._pipeline, self._keys, self._models), server)
        admin_pb2_grpc.add_AdminServicer_to_server(AdminServicer(AdminDesk(self._admin_store, self._clock), self._keys), server)
        return [f"inferway.edge.v1.{name}" for name in ("OpenAI", "Inference", "Admin")]

    async def run(self, state: ServiceState) -> None:
        """Owns the background work. Ready once keys and models are known: a router that is away is the requests' news, not the edge's."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._stored_keys, self._fleet, self._models, self.outboxes, self._dispatch, self._sessions):
                tasks.create_task(work.run())
            if self._operator_key:
                tasks.create_task(self._admin_store.ensure_operator_key(self._operator_key, self._clock))
            await self._stored_keys.wait_ready()
            await self._models.wait_ready()
            await state.set_ready(True)

    async def drain(self, timeout_s: float) -> None:
        """Takes no new requests and lets those in work end; what is left then is settled and told so."""
        self._admission.close()
        await self._tasks.drain(timeout_s)

    async def close(self) -> None:
        """Ends connections, files and threads."""
        await self._tasks.drain(0)
        await self.outboxes.close()
        await self._producer.close()
        await self._router.close()
        await self._etcd.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _read_operator_key(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ConfigError(f"{PREFIX}BOOTSTRAP_ADMIN_KEY_FILE: cannot read {path}: {error.strerror}") from error


def server_settings(config: GatewayConfig) -> ServerSettings:
    """Where the gateway listens."""
    return ServerSettings(
        host=config.host,
        port=config.port,
        metrics_port=config.metrics_port,
        drain_timeout_s=config.drain_timeout_s,
        reflection=config.reflection,
        log_level=config.log_level,
        otlp_endpoint=config.otlp_endpoint,
        trace_sample_ratio=config.trace_sample_ratio,
    )


async def run_gateway(config: GatewayConfig, stop: asyncio.Event | None = None) -> None:
    """Serves until SIGTERM or `stop`."""
    gateway = Gateway(config)
    try:
        await serve(
            server_settings(config),
            name="gateway",
            registry=gateway.registry,
            register=gateway.register,
            run=gateway.run,
            drain=gateway.drain,
            stop=stop,
        )
    finally:
        await gateway.close()


async def main() -> None:
    """Runs the gateway from the environment."""
    await run_gateway(load(GatewayConfig, PREFIX, os.environ))
