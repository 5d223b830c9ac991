"""The Kafka clients against a broker that accepts connections and then says nothing, as a stopped process does."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from services.kit import kafka
from services.kit.events import EventsUnavailable, OutgoingRecord
from services.kit.kafka import KafkaConsumer, KafkaProducer, KafkaSettings

RECORD = OutgoingRecord("usage.test.v1", b"tenant", b"value")


@pytest.fixture
def silent() -> Iterator[KafkaSettings]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield KafkaSettings((f"127.0.0.1:{server.getsockname()[1]}",))


def wait_for_bootstrap(monkeypatch: pytest.MonkeyPatch, timeout_ms: int) -> None:
    usual = KafkaSettings.client_options

    def options(settings: KafkaSettings) -> dict[str, Any]:
        return usual(settings) | {"bootstrap_timeout_ms": timeout_ms}

    monkeypatch.setattr(KafkaSettings, "client_options", options)


def held() -> tuple[int, int]:
    """File descriptors and threads of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


async def test_silent_broker_costs_neither_descriptors_nor_threads(silent: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_bootstrap(monkeypatch, 50)
    producer, consumer = KafkaProducer(silent), KafkaConsumer(silent)

    async def fail_all() -> tuple[int, int]:
        for call in (producer.send([RECORD]), consumer.partitions("usage.test.v1"), consumer.topic_ids(["usage.test.v1"])):
            with pytest.raises(EventsUnavailable):
                await call
        return held()

    first = await fail_all()
    for _ in range(3):
        last = await fail_all()
    assert last == first
    await producer.close()
    await consumer.close()


async def test_close_does_not_wait_for_a_silent_broker(silent: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_bootstrap(monkeypatch, 3_000)
    monkeypatch.setattr(kafka, "_END_TIMEOUT_S", 0.01)
    producer = KafkaProducer(silent)
    sending = asyncio.ensure_future(producer.send([RECORD]))
    await asyncio.sleep(0)
    await producer.close()
    assert not sending.done()
    with pytest.raises(EventsUnavailable):
        await sending
