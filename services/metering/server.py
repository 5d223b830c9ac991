"""Builds and wires metering: consumer, ledger, watermarks, RPCs."""

import asyncio
import os
import pathlib

import grpc

from inferway.metering.v1 import metering_pb2_grpc
from services.kit.clock import SystemClock
from services.kit.config import load
from services.kit.etcd import EtcdClient
from services.kit.kafka import KafkaConsumer, ensure_topics
from services.kit.kafka_environ import kafka_settings
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings, ServiceState, serve
from services.metering.clients import usage_records
from services.metering.config import MeteringConfig
from services.metering.ingest import Ingest, IngestSettings
from services.metering.ledger.interface import Applied
from services.metering.ledger.sqlite import SqliteLedger
from services.metering.ledger.thread import LedgerThread
from services.metering.log_ends import LogEnds
from services.metering.metrics import MeteringMetrics
from services.metering.servicer.unserved import BillingServicer, QuotaServicer
from services.metering.servicer.usage import UsageServicer
from services.metering.watermarks import WatermarkPublisher

COUNT_MISSING_S = 2.0


class Metering:
    """The running service; its parts live from `open` to `close`."""

    def __init__(self, config: MeteringConfig) -> None:
        database = pathlib.Path(config.home) / "state" / "ledger.sqlite"
        database.parent.mkdir(parents=True, exist_ok=True)
        self._config = config
        self.registry = new_registry()
        self._metrics = MeteringMetrics(self.registry)
        self._kafka = kafka_settings(config.kafka_bootstrap, os.environ)
        self._etcd = EtcdClient(list(config.etcd_endpoints))
        self._writer = LedgerThread(lambda: SqliteLedger(str(database)), "writer")
        self._reader = LedgerThread(lambda: SqliteLedger(str(database)), "reader")
        self._consumer = KafkaConsumer(self._kafka)
        self._watermarks = WatermarkPublisher(self._etcd)
        self._log_ends = LogEnds()
        topics = (config.requests_topic, config.attempts_topic)
        settings = IngestSettings(topics, max_batch_records=config.max_batch_records, check_log_s=config.check_log_s)
        self._ingest = Ingest(
            self._consumer,
            self._writer,
            usage_records.from_bytes,
            self._on_applied,
            self._make_topics,
            SystemClock(),
            self._metrics,
            self._log_ends,
            settings,
        )

    def register(self, server: grpc.aio.Server) -> list[str]:
        """Adds the RPCs."""
        metering_pb2_grpc.add_UsageServicer_to_server(UsageServicer(self._reader, self._log_ends), server)
        metering_pb2_grpc.add_QuotaServicer_to_server(QuotaServicer(), server)
        metering_pb2_grpc.add_BillingServicer_to_server(BillingServicer(), server)
        return [f"inferway.metering.v1.{name}" for name in ("Usage", "Quota", "Billing")]

    async def run(self, state: ServiceState) -> None:
        """Ready once the ledger answers: a broker that is away holds up the bill, not the questions."""
        producers = await self._reader.call(lambda ledger: ledger.producers())
        self._watermarks.note({producer.producer_id: producer.watermark for producer in producers})
        await state.set_ready(True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watermarks.run())
            tasks.create_task(self._ingest.run())
            tasks.create_task(self._count_missing())

    async def close(self) -> None:
        """Ends the connections and the ledger."""
        await self._consumer.close()
        await self._etcd.close()
        self._writer.close()
        self._reader.close()

    def _on_applied(self, applied: Applied) -> None:
        self._watermarks.note(applied.watermarks)

    async def _make_topics(self) -> None:
        topics = (self._config.requests_topic, self._config.attempts_topic)
        await ensure_topics(self._kafka, dict.fromkeys(topics, self._config.topic_partitions))

    async def _count_missing(self) -> None:
        while True:
            self._metrics.set_missing(await self._reader.call(lambda ledger: ledger.producers()))
            await asyncio.sleep(COUNT_MISSING_S)


async def main() -> None:
    """Runs metering from the environment until SIGTERM."""
    config = load(MeteringConfig, "INFERWAY_METERING_", os.environ)
    metering = Metering(config)
    settings = ServerSettings(
        host=config.host,
        port=config.port,
        metrics_port=config.metrics_port,
        drain_timeout_s=config.drain_timeout_s,
        log_level=config.log_level,
        otlp_endpoint=config.otlp_endpoint,
        trace_sample_ratio=config.trace_sample_ratio,
    )
    try:
        await serve(settings, name="metering", registry=metering.registry, register=metering.register, run=metering.run)
    finally:
        await metering.close()
