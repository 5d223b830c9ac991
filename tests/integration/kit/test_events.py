"""The event log's client against a small broker, and the shipper that empties an outbox into it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.kit.events import EventsUnavailable, OutgoingRecord, ReceivedRecord, TopicPartition
from services.kit.kafka import KafkaConsumer, KafkaProducer, KafkaSettings, ensure_topics
from tests.harness.eventually import eventually
from tests.harness.tansu import TansuBroker

TOPIC = "usage.test.v1"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[TansuBroker]:
    running = TansuBroker(tmp_path)
    await running.start()
    yield running
    running.kill()


@pytest.fixture
async def settings(broker: TansuBroker) -> KafkaSettings:
    settings = KafkaSettings((broker.bootstrap,))
    await ensure_topics(settings, {TOPIC: 3})
    return settings


@pytest.fixture
async def producer(settings: KafkaSettings) -> AsyncIterator[KafkaProducer]:
    made = KafkaProducer(settings)
    yield made
    await made.close()


@pytest.fixture
async def open_consumer(settings: KafkaSettings) -> AsyncIterator[Callable[[], KafkaConsumer]]:
    consumers: list[KafkaConsumer] = []

    def make() -> KafkaConsumer:
        consumers.append(KafkaConsumer(settings))
        return consumers[-1]

    yield make
    for consumer in consumers:
        await consumer.close()


async def _read(consumer: KafkaConsumer, count: int) -> list[ReceivedRecord]:
    records: list[ReceivedRecord] = []
    while len(records) < count:
        records += await consumer.poll(1.0, 100)
    return records


async def test_records_sent_arrive_in_order_per_key_with_headers(
    producer: KafkaProducer, open_consumer: Callable[[], KafkaConsumer]
) -> None:
    sent = [OutgoingRecord(TOPIC, f"tenant-{number % 4}".encode(), str(number).encode(), (("n", b"1"),)) for number in range(400)]
    await producer.send(sent)
    consumer = open_consumer()
    partitions = [TopicPartition(TOPIC, number) for number in await consumer.partitions(TOPIC)]
    await consumer.assign(await consumer.beginning_offsets(partitions))
    async with asyncio.timeout(20):
        received = await _read(consumer, 400)

    for key in {record.key for record in sent}:
        assert [r.value for r in received if r.key == key] == [s.value for s in sent if s.key == key]
        assert len({r.partition for r in received if r.key == key}) == 1
    assert received[0].headers == (("n", b"1"),) and received[0].timestamp_ms > 0
    assert len(partitions) == 3


async def test_consumer_assigned_to_an_offset_starts_there(producer: KafkaProducer, open_consumer: Callable[[], KafkaConsumer]) -> None:
    await producer.send([OutgoingRecord(TOPIC, b"k", str(number).encode()) for number in range(10)])
    consumer = open_consumer()
    partitions = [TopicPartition(TOPIC, number) for number in range(3)]
    ends = await consumer.end_offsets(partitions)
    (filled,) = [partition for partition, end in ends.items() if end]
    await consumer.assign({filled: 7})
    async with asyncio.timeout(20):
        assert [record.value for record in await _read(consumer, 3)] == [b"7", b"8", b"9"]


async def test_topic_id_changes_when_the_topic_is_made_anew(
    broker: TansuBroker, settings: KafkaSettings, open_consumer: Callable[[], KafkaConsumer]
) -> None:
    consumer = open_consumer()
    first = await consumer.topic_ids([TOPIC, "no.such.topic"])
    assert list(first) == [TOPIC]
    assert first == await consumer.topic_ids([TOPIC])
    broker.kill()
    await broker.start()
    await ensure_topics(settings, {TOPIC: 3})

    second = await consumer.topic_ids([TOPIC])
    assert list(second) == [TOPIC] and second != first


async def test_ensure_topics_keeps_what_exists(settings: KafkaSettings, open_consumer: Callable[[], KafkaConsumer]) -> None:
    await ensure_topics(settings, {TOPIC: 7, "usage.other.v1": 2})
    consumer = open_consumer()
    assert len(await consumer.partitions(TOPIC)) == 3
    assert len(await consumer.partitions("usage.other.v1")) == 2
    assert await consumer.partitions("no.such.topic") == ()


async def test_send_with_broker_away_fails_in_time_blocks_nothing_and_recovers(
    broker: TansuBroker, settings: KafkaSettings, producer: KafkaProducer
) -> None:
    record = OutgoingRecord(TOPIC, b"k", b"v")
    await producer.send([record])
    broker.kill()
    failing = asyncio.ensure_future(producer.send([record]))
    ticks = 0
    while not failing.done():
        await asyncio.wait({failing}, timeout=0.05)
        ticks += 1
    with pytest.raises(EventsUnavailable):
        await failing
    with pytest.raises(EventsUnavailable, match="nobody answers"):
        await producer.send([record])
    await broker.start()
    await ensure_topics(settings, {TOPIC: 3})

    async def sends() -> bool:
        try:
            await producer.send([record])
        except EventsUnavailable:
            return False
        return True

    await eventually(sends)
    assert ticks > 20  # The event loop went on while the client's thread waited for the broker.
