"""The event log's client and the shipper on a real Apache Kafka: what was acknowledged stays, and both ends come back by themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.kit import keyspace
from services.kit.etcd import EtcdClient
from services.kit.events import EventsUnavailable, TopicPartition
from services.kit.kafka import KafkaConsumer, KafkaProducer, KafkaSettings, ensure_topics
from services.kit.outbox import Outbox
from services.kit.shipper import Shipper
from tests.harness.broker import Broker, running_broker

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]
TOPIC = "usage.test.v1"
NUM_PARTITIONS = 2
NUM_RECORDS = 600


class Ledger:
    """Reads the topic as metering does, publishes the watermark, and keeps how often each number came."""

    def __init__(self, consumer: KafkaConsumer, client: EtcdClient, producer_id: str) -> None:
        self._consumer = consumer
        self._client = client
        self._key = keyspace.watermark(producer_id)
        self.seen: dict[int, int] = {}

    async def read(self, goal: int) -> None:
        while len(self.seen) < goal:
            try:
                records = await self._consumer.poll(0.5, 500)
            except EventsUnavailable:
                await asyncio.sleep(0.1)
                continue
            for record in records:
                number = int(record.value)
                self.seen[number] = self.seen.get(number, 0) + 1
            watermark = next(number for number in range(1, len(self.seen) + 2) if number not in self.seen) - 1
            await self._client.put(self._key, str(watermark).encode())


def _value(_producer_id: str, sequence: int) -> bytes:
    return str(sequence).encode()


async def _append_through_a_kill(outbox: Outbox, broker: Broker) -> None:
    for number in range(NUM_RECORDS):
        await outbox.append(TOPIC, f"tenant-{number % 5}".encode(), _value)
        if number == NUM_RECORDS // 3:
            await outbox.wait_beyond(0)
            await broker.kill()
    await broker.start()


async def test_records_shipped_through_kill_9_of_kafka_reach_the_ledger_and_empty_the_outbox(tmp_path: Path, client: EtcdClient) -> None:
    outbox = Outbox.open(tmp_path / "own.sqlite", max_bytes=1_000_000)
    async with running_broker(tmp_path / "kafka") as broker:
        settings = KafkaSettings((broker.bootstrap,))
        await ensure_topics(settings, {TOPIC: NUM_PARTITIONS})
        producer, consumer = KafkaProducer(settings, {TOPIC: NUM_PARTITIONS}), KafkaConsumer(settings)
        first_id = await consumer.topic_ids([TOPIC])
        await consumer.assign({TopicPartition(TOPIC, number): 0 for number in range(NUM_PARTITIONS)})
        ledger = Ledger(consumer, client, outbox.producer_id)
        shipping = asyncio.ensure_future(Shipper(outbox, producer, client, keyspace.watermark(outbox.producer_id)).run())
        try:
            async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
                tasks.create_task(_append_through_a_kill(outbox, broker))
                tasks.create_task(ledger.read(NUM_RECORDS))
            async with asyncio.timeout(20):
                await outbox.wait_empty()
            assert await consumer.topic_ids([TOPIC]) == first_id
            ends = await consumer.end_offsets([TopicPartition(TOPIC, number) for number in range(NUM_PARTITIONS)])
        finally:
            shipping.cancel()
            await asyncio.wait({shipping})
            await outbox.close()
            await producer.close()
            await consumer.close()

    assert sorted(ledger.seen) == list(range(1, NUM_RECORDS + 1))
    assert sum(ends.values()) >= NUM_RECORDS
