"""A gateway ended right after its replies, a broker that falls silent, events that come twice: every reply is on the bill once."""

from __future__ import annotations

import asyncio
import signal

import kafka
import pytest

from inferway.metering.v1 import records_pb2
from tests.harness.bill import Bill
from tests.harness.eventually import eventually
from tests.harness.measure import OUTBOX, nothing_waits, scrape
from tests.harness.mesh import Mesh
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

TOPIC = "usage.requests.v1"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_gateway_ended_right_after_its_replies_loses_no_bill(mesh: Mesh, how: signal.Signals) -> None:
    gateway = mesh.child("gateway").identity
    assert gateway is not None
    async with Clients(mesh) as clients:
        told = await asyncio.gather(*(clients.surfaces[number % 3](f"Number {number}?", 3) for number in range(9)))
        gateway.signal(how)
    assert [one.failure for one in told] == [""] * 9
    await mesh.until_ready("gateway", gateway)
    await Bill(mesh).until_equal(told)


async def test_broker_that_falls_silent_delays_no_answer_and_loses_no_bill(mesh: Mesh) -> None:
    """Frozen, not dead: no connection breaks, nothing is acknowledged, and the records wait where they are durable."""
    await eventually(lambda: nothing_waits(mesh), 30)
    broker = mesh.child("kafka").identity
    assert broker is not None
    broker.signal(signal.SIGSTOP)
    try:
        async with Clients(mesh) as clients:
            told = await asyncio.gather(*(clients.surfaces[number % 3](f"Silent {number}?", 3) for number in range(30)))
        waiting = (await scrape(mesh.ports.gateway_metrics))[OUTBOX]
    finally:
        broker.signal(signal.SIGCONT)
    assert [one.failure for one in told if one.failure] == []
    assert waiting == 30
    await Bill(mesh).until_equal(told)


async def test_event_that_is_sent_again_counts_once_even_after_a_restart(mesh: Mesh) -> None:
    async with Clients(mesh) as clients:
        told = await clients.ask_whole("hi", 5)
    assert told.failure == ""
    await Bill(mesh).until_equal([told])
    value = await asyncio.to_thread(find_event, mesh, told.completion_id)
    before = (await Bill(mesh).status()).num_duplicates

    await asyncio.to_thread(send_again, mesh, value)
    await mesh.until_ready("metering", mesh.kill("metering"))
    await asyncio.to_thread(send_again, mesh, value)

    async def both_seen() -> bool:
        return (await Bill(mesh).status()).num_duplicates >= before + 2

    await eventually(both_seen, 30)
    await Bill(mesh).until_equal([told])


def find_event(mesh: Mesh, completion_id: str) -> bytes:
    """The event of a request, as it stands in the log."""
    consumer = kafka.KafkaConsumer(
        TOPIC, bootstrap_servers=f"127.0.0.1:{mesh.ports.kafka}", auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    try:
        for message in consumer:
            if records_pb2.UsageRecord.FromString(message.value).request.completion_id == completion_id:
                return bytes(message.value)
    finally:
        consumer.close()
    raise AssertionError(f"no event of {completion_id}")


def send_again(mesh: Mesh, value: bytes) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=f"127.0.0.1:{mesh.ports.kafka}")
    try:
        producer.send(TOPIC, value).get(10)
    finally:
        producer.close()
