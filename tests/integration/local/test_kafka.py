"""The local Kafka keeps what it acknowledged, over kill -9 and over an orderly stop."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.harness.broker import Broker, kafka_in, running_broker

TOPIC = "usage.requests.v1"
NUM_RECORDS = 6000
KILL_AFTER = 1500


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "kafka") as running:
        yield running


async def start_producer(bootstrap: str, count: int) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "tests.harness.numbered_producer", bootstrap, TOPIC, str(count))
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def acknowledged(producer: asyncio.subprocess.Process, most: int) -> list[int]:
    """The next acknowledged numbers, until `most` or until the producer is done."""
    assert producer.stdout is not None
    numbers: list[int] = []
    while len(numbers) < most and (line := await producer.stdout.readline()):
        numbers.append(int(line))
    return numbers


def read_all(bootstrap: str) -> list[int]:
    """Every record of the topic from the first to the end offset."""
    partition = TopicPartition(TOPIC, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        numbers: list[int] = []
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=1000).values():
                numbers += [int(record.value) for record in records]
        return numbers
    finally:
        consumer.close()


def test_prepare_formats_whatever_letter_the_id_begins_with(tmp_path: Path) -> None:
    kafka = replace(kafka_in(tmp_path / "kafka"), cluster_id="-" + "A" * 21)
    kafka.prepare()
    assert f"cluster.id={kafka.cluster_id}" in (kafka.directory / "data" / "meta.properties").read_text()


async def test_kafka_killed_while_producing_keeps_every_acknowledged_record_once(broker: Broker) -> None:
    async with asyncio.timeout(50):
        producer = await start_producer(broker.bootstrap, NUM_RECORDS)
        told = await acknowledged(producer, KILL_AFTER)
        await broker.kill()
        await broker.start()
        told += await acknowledged(producer, NUM_RECORDS)
        await producer.wait()
        stored = Counter(await asyncio.to_thread(read_all, broker.bootstrap))

    assert sorted(told) == list(range(NUM_RECORDS)), "the producer did not come back"
    assert {number: count for number, count in stored.items() if count != 1} == {}
    assert set(told) <= set(stored)


async def test_kafka_stopped_by_sigterm_restarts_with_its_data(broker: Broker) -> None:
    async with asyncio.timeout(50):
        producer = await start_producer(broker.bootstrap, 7)
        assert await acknowledged(producer, 7) == list(range(7))
        await producer.wait()

        await broker.stop()
        await broker.start()

        assert await asyncio.to_thread(read_all, broker.bootstrap) == list(range(7))
