"""An attempt's record travels from the engine to the event log, and leaves the outbox only when the ledger has it."""

import asyncio
from pathlib import Path

from inferway.metering.v1 import records_pb2
from services.engine.clients import ATTEMPTS_TOPIC
from services.kit import keyspace
from services.kit.etcd import EtcdClient
from services.kit.events import TopicPartition
from services.kit.kafka import KafkaConsumer, KafkaSettings, ensure_topics
from tests.harness.engine import GatewayStub, running_engine
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually
from tests.harness.tansu import TansuBroker


async def first_record(settings: KafkaSettings) -> records_pb2.UsageRecord:
    consumer = KafkaConsumer(settings)
    try:
        await consumer.assign({TopicPartition(ATTEMPTS_TOPIC, 0): 0})
        async with asyncio.timeout(30):
            while not (records := await consumer.poll(1.0, 10)):
                pass
        return records_pb2.UsageRecord.FromString(records[0].value)
    finally:
        await consumer.close()


async def test_attempt_record_reaches_the_event_log_and_waits_for_the_ledger(tmp_path: Path) -> None:
    etcd, broker = EtcdServer(tmp_path / "etcd"), TansuBroker(tmp_path)
    await etcd.start()
    await broker.start()
    client = EtcdClient([etcd.endpoint])
    settings = KafkaSettings((broker.bootstrap,))
    try:
        await ensure_topics(settings, {ATTEMPTS_TOPIC: 1})
        mesh = {"etcd_endpoints": (etcd.endpoint,), "kafka_bootstrap": (broker.bootstrap,)}
        async with running_engine(tmp_path / "home", **mesh) as (engine, channel):
            heard = await (await GatewayStub(channel).hello()).run("a")
            record = await first_record(settings)
            assert (record.sequence, record.attempt.attempt_id) == (1, "a")
            assert record.attempt.output_tokens == len(heard.token_ids)
            assert [kept.attempt_id for kept in await engine.records()] == ["a"]
            await client.put(keyspace.watermark(record.producer_id), b"1")
            await eventually(lambda: _is_empty(engine))
    finally:
        await client.close()
        etcd.kill()
        broker.kill()


async def _is_empty(engine: object) -> bool:
    return not await engine.records()  # type: ignore[attr-defined]
