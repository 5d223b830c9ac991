"""The shipper against a real registry: the ledger's word, not the broker's, empties the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.kit import keyspace
from services.kit.etcd import EtcdClient
from services.kit.events import EventProducer, EventsUnavailable, TopicPartition
from services.kit.kafka import KafkaConsumer, KafkaProducer, KafkaSettings
from services.kit.outbox import Outbox, OutboxRow
from services.kit.outbox_directory import OutboxDirectory
from services.kit.outbox_fleet import OutboxFleet
from services.kit.shipper import Shipper, ShipperMetrics
from services.kit.watermark import Watermark
from tests.harness.etcd import EtcdServer
from tests.harness.eventually import eventually
from tests.harness.memory_producer import MemoryProducer
from tests.harness.tansu import TansuBroker

TOPIC = "usage.test.v1"
StartShipper = Callable[..., Shipper]


@pytest.fixture
async def outbox(tmp_path: Path) -> AsyncIterator[Outbox]:
    opened = Outbox.open(tmp_path / "own.sqlite", max_bytes=10_000_000)
    yield opened
    await opened.close()


@pytest.fixture
def producer() -> MemoryProducer:
    return MemoryProducer()


@pytest.fixture
async def ship(outbox: Outbox, connect: Callable[[], EtcdClient]) -> AsyncIterator[StartShipper]:
    running: list[asyncio.Future[None]] = []

    def start(producer: EventProducer, resend_after_s: float = 60.0, registry: CollectorRegistry | None = None) -> Shipper:
        key = keyspace.watermark(outbox.producer_id)
        metrics = ShipperMetrics(registry or CollectorRegistry())
        shipper = Shipper(outbox, producer, connect(), key, resend_after_s=resend_after_s, metrics=metrics)
        running.append(asyncio.ensure_future(shipper.run()))
        return shipper

    yield start
    for shipping in running:
        shipping.cancel()
        await asyncio.wait({shipping})


def _value(_producer_id: str, sequence: int) -> bytes:
    return str(sequence).encode()


async def _append(outbox: Outbox, count: int) -> None:
    await asyncio.gather(*(outbox.append(TOPIC, b"tenant", _value) for _ in range(count)))


def _sequences(producer: MemoryProducer) -> list[int]:
    return [int(dict(record.headers)["sequence"]) for record in producer.records]


async def test_shipper_deletes_a_record_only_when_the_watermark_has_passed_it(
    outbox: Outbox, client: EtcdClient, producer: MemoryProducer, ship: StartShipper
) -> None:
    ship(producer)
    await _append(outbox, 700)
    await eventually(lambda: len(producer.records) == 700)
    assert outbox.num_rows == 700
    await client.put(keyspace.watermark(outbox.producer_id), b"400")
    await eventually(lambda: outbox.num_rows == 300)
    await client.put(keyspace.watermark(outbox.producer_id), b"700")
    async with asyncio.timeout(10):
        await outbox.wait_empty()

    assert _sequences(producer) == list(range(1, 701))
    assert [int(record.value) for record in producer.records] == list(range(1, 701))


async def test_shipper_sends_again_what_the_ledger_did_not_get(
    outbox: Outbox, client: EtcdClient, producer: MemoryProducer, ship: StartShipper
) -> None:
    """The broker acknowledged and then lost records: the bill must not depend on it."""
    registry = CollectorRegistry()
    ship(producer, resend_after_s=0.3, registry=registry)
    await _append(outbox, 5)
    await eventually(lambda: len(producer.records) >= 5)
    await client.put(keyspace.watermark(outbox.producer_id), b"2")
    await eventually(lambda: outbox.num_rows == 3)  # Until the shipper knows, it may send all of them again.
    producer.records.clear()
    await eventually(lambda: len(producer.records) >= 3)

    assert _sequences(producer)[:3] == [3, 4, 5]
    assert (registry.get_sample_value("inferway_outbox_resends_total") or 0) >= 1


async def test_shipper_with_broker_away_leaves_append_alone_and_catches_up(
    outbox: Outbox, client: EtcdClient, producer: MemoryProducer, ship: StartShipper
) -> None:
    producer.away = True
    ship(producer)
    await _append(outbox, 10)
    await eventually(lambda: producer.num_failed >= 2)
    await _append(outbox, 10)
    producer.away = False
    await eventually(lambda: len(producer.records) == 20)
    assert _sequences(producer) == list(range(1, 21))


async def test_shipper_with_broker_hanging_leaves_append_and_trim_alone(
    outbox: Outbox, client: EtcdClient, producer: MemoryProducer, ship: StartShipper
) -> None:
    producer.hangs = True
    ship(producer)
    async with asyncio.timeout(10):
        await _append(outbox, 10)
        await client.put(keyspace.watermark(outbox.producer_id), b"10")
        await outbox.wait_empty()


async def test_shipper_with_etcd_away_does_not_send_again_and_trims_when_it_is_back(
    etcd: EtcdServer, outbox: Outbox, client: EtcdClient, producer: MemoryProducer, ship: StartShipper
) -> None:
    """An unreadable watermark says nothing about the ledger: repeating everything would only flood the broker."""
    registry = CollectorRegistry()
    etcd.kill()
    ship(producer, resend_after_s=0.05, registry=registry)
    await _append(outbox, 5)
    await eventually(lambda: len(producer.records) == 5)
    await _append(outbox, 5)
    await eventually(lambda: len(producer.records) == 10)
    assert registry.get_sample_value("inferway_outbox_resends_total") == 0
    await etcd.start()
    await client.put(keyspace.watermark(outbox.producer_id), b"10")
    async with asyncio.timeout(20):
        await outbox.wait_empty()


async def test_shipper_ignores_a_watermark_that_is_no_number(
    outbox: Outbox, client: EtcdClient, producer: MemoryProducer, ship: StartShipper
) -> None:
    await client.put(keyspace.watermark(outbox.producer_id), b"all of it")
    ship(producer)
    await _append(outbox, 3)
    await client.put(keyspace.watermark(outbox.producer_id), b"3")
    async with asyncio.timeout(10):
        await outbox.wait_empty()
    assert _sequences(producer) == [1, 2, 3]


async def test_fleet_ships_own_and_orphaned_outboxes_and_gives_the_orphan_back(
    tmp_path: Path, client: EtcdClient, producer: MemoryProducer
) -> None:
    registry = CollectorRegistry()
    directory = OutboxDirectory(tmp_path / "outboxes", max_bytes=1_000_000)
    dead, busy = directory.open_own(), directory.open_own()
    await _append(dead, 3)
    fleet = OutboxFleet(directory, producer, client, keyspace.watermark, adopt_every_s=0.05, registry=registry)
    await fleet.own.append(TOPIC, b"tenant", _value)
    running = asyncio.ensure_future(fleet.run())
    try:
        await eventually(lambda: len(producer.records) == 1)
        await dead.close()  # As the operating system does for a process that was killed: the lock is free, the records are there.
        await eventually(lambda: len(producer.records) == 4)
        assert registry.get_sample_value("inferway_outbox_rows") == 4
        assert (registry.get_sample_value("inferway_outbox_oldest_age_seconds") or 0) >= 0
        await client.put(keyspace.watermark(dead.producer_id), b"3")
        await eventually(lambda: registry.get_sample_value("inferway_outbox_rows") == 1)
    finally:
        running.cancel()
        await asyncio.wait({running})
        await fleet.close()
        await busy.close()
    by_producer = {(dict(record.headers)["producer_id"].decode(), record.value) for record in producer.records}
    assert by_producer == {(dead.producer_id, b"1"), (dead.producer_id, b"2"), (dead.producer_id, b"3"), (fleet.own.producer_id, b"1")}


async def test_records_acknowledged_and_lost_by_the_broker_reach_the_ledger(
    tmp_path: Path, outbox: Outbox, client: EtcdClient, ship: StartShipper
) -> None:
    """A broker in memory is killed with acknowledged records that nobody has read; all arrive in the end, none is deleted too early."""
    broker = TansuBroker(tmp_path)
    await broker.start()
    settings = KafkaSettings((broker.bootstrap,))
    producer, consumer = KafkaProducer(settings, {TOPIC: 1}), KafkaConsumer(settings)
    ledger: set[int] = set()
    registry = CollectorRegistry()

    async def read(goal: set[int], into: set[int], *, publish: bool) -> None:
        await eventually(lambda: _assign(consumer))
        while into != goal:
            into.update(int(record.value) for record in await consumer.poll(0.2, 500))
            if publish:
                watermark = next(number for number in range(1, len(into) + 2) if number not in into) - 1
                await client.put(keyspace.watermark(outbox.producer_id), str(watermark).encode())

    try:
        ship(producer, resend_after_s=1.0, registry=registry)
        await _append(outbox, 50)
        async with asyncio.timeout(50):
            await read(set(range(1, 51)), set(), publish=False)
            broker.kill()
            await _append(outbox, 50)
            await eventually(lambda: (registry.get_sample_value("inferway_outbox_failed_sends_total") or 0) >= 1)
            await broker.start()
            await read(set(range(1, 101)), ledger, publish=True)
            await outbox.wait_empty()
    finally:
        await consumer.close()
        await producer.close()
        broker.kill()
    assert ledger == set(range(1, 101))


async def _assign(consumer: KafkaConsumer) -> bool:
    try:
        await consumer.assign({TopicPartition(TOPIC, 0): 0})
    except EventsUnavailable:
        return False
    return True


async def test_shipper_with_a_lost_watermark_and_an_empty_outbox_rests(
    outbox: Outbox, producer: MemoryProducer, ship: StartShipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that are gone from the outbox must not be looked for over and over."""
    await _append(outbox, 5)
    await outbox.trim(5)
    num_reads, read = 0, outbox.read

    async def counted(after: int, max_rows: int) -> list[OutboxRow]:
        nonlocal num_reads
        num_reads += 1
        return await read(after, max_rows)

    monkeypatch.setattr(outbox, "read", counted)
    ship(producer)
    await eventually(lambda: num_reads >= 1)
    for _ in range(20):  # a restless shipper would read once more for each of these
        await read(0, 1)
    await _append(outbox, 1)
    await eventually(lambda: _sequences(producer) == [6])

    assert num_reads <= 4


async def test_watermark_that_is_not_there_yet_is_followed_although_the_history_of_the_registry_is_compacted(
    client: EtcdClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Else nothing would be sent again: a shipper waits with that while it cannot tell where the ledger is."""
    key = keyspace.watermark("new-producer")
    await client.compact(await client.put(keyspace.watermark("other-producer"), b"3"))
    watermark = Watermark(client, key)
    following = asyncio.ensure_future(watermark.run())
    try:
        await eventually(lambda: watermark.live)
        await client.put(key, b"5")
        async with asyncio.timeout(10):
            assert await watermark.wait_beyond(0) == 5
    finally:
        following.cancel()
        await asyncio.wait({following})
    assert "cannot be followed" not in caplog.text
