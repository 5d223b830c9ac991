"""The ingest goes on from the ledger's offsets through everything a broker can do to it."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry

from services.kit.clock import SystemClock
from services.metering.clients.usage_records import from_bytes
from services.metering.ingest import Ingest, IngestSettings
from services.metering.ledger.interface import Applied, RequestFilter
from services.metering.ledger.sqlite import SqliteLedger
from services.metering.ledger.thread import LedgerThread
from services.metering.log_ends import LogEnds
from services.metering.metrics import MeteringMetrics
from tests.harness.event_log import MemoryLog
from tests.harness.usage import request_record

TOPIC = "usage.requests.v1"


class Rig:
    """An ingest over a memory log and a ledger in memory; `until` waits for what the ledger says after a batch."""

    def __init__(self) -> None:
        self.log = MemoryLog({TOPIC: 2})
        self.ledger = LedgerThread(lambda: SqliteLedger(":memory:"), "test")
        self.registry = CollectorRegistry()
        self.watermarks: dict[str, int] = {}
        self._applied = asyncio.Event()
        settings = IngestSettings((TOPIC,), poll_s=0.02, check_log_s=0.02, retry_s=0.01)
        metrics = MeteringMetrics(self.registry)
        clock = SystemClock()
        self.now = clock.unix_ms()
        self.ingest = Ingest(self.log, self.ledger, from_bytes, self._note, self._prepare, clock, metrics, LogEnds(), settings)

    def _note(self, applied: Applied) -> None:
        self.watermarks.update(applied.watermarks)
        self._applied.set()

    async def _prepare(self) -> None:
        """Topics of the memory log are always there."""

    def publish(self, *sequences: int, partition: int = 0) -> None:
        for sequence in sequences:
            self.log.append(TOPIC, request_record(sequence=sequence, sealed_unix_ms=self.now).SerializeToString(), partition)

    async def charges(self) -> set[str]:
        found = await self.ledger.call(lambda ledger: ledger.requests(RequestFilter(limit=1000)))
        return {entry.charge_id for entry, _ in found}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._applied.clear()
                await self._applied.wait()

    def count(self, name: str) -> float:
        return self.registry.get_sample_value(f"inferway_metering_{name}_total") or 0


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    task = asyncio.ensure_future(rig.ingest.run())
    yield rig
    task.cancel()
    await asyncio.wait({task})
    rig.ledger.close()


async def test_run_stores_all_partitions_and_tells_watermarks(rig: Rig) -> None:
    rig.publish(1, 3, partition=0)
    rig.publish(2, partition=1)
    await rig.until(lambda: rig.watermarks == {"p1": 3})
    assert await rig.charges() == {"p1-1", "p1-2", "p1-3"}


async def test_run_topic_made_anew_is_read_from_its_beginning(rig: Rig) -> None:
    rig.publish(1, 2, 3)
    await rig.until(lambda: rig.watermarks == {"p1": 3})
    rig.log.recreate(TOPIC, "id-2")
    rig.publish(3, 4)
    await rig.until(lambda: rig.watermarks == {"p1": 4})
    assert await rig.charges() == {"p1-1", "p1-2", "p1-3", "p1-4"}
    assert (await rig.ledger.call(lambda ledger: ledger.totals())).num_topic_resets >= 1


async def test_run_log_cut_below_the_stored_offset_loses_nothing_that_is_sent_again(rig: Rig) -> None:
    rig.publish(1, 2, 3)
    await rig.until(lambda: rig.watermarks == {"p1": 3})
    rig.log.cut(TOPIC, 1)
    rig.publish(4)
    await rig.until(lambda: rig.watermarks == {"p1": 4})
    assert rig.count("topic_resets") >= 1


async def test_run_broker_that_understates_its_end_resets_nothing(rig: Rig) -> None:
    rig.publish(1, 2, 3)
    await rig.until(lambda: rig.watermarks == {"p1": 3})
    rig.log.understated = 2
    rig.log.away = True
    rig.publish(4)
    rig.log.away = False
    await rig.until(lambda: rig.watermarks == {"p1": 4})
    assert (rig.count("topic_resets"), rig.count("duplicate_records")) == (0, 0)


async def test_run_broker_away_goes_on_where_it_was(rig: Rig) -> None:
    rig.publish(1)
    await rig.until(lambda: rig.watermarks == {"p1": 1})
    rig.log.away = True
    rig.publish(2)
    rig.log.away = False
    await rig.until(lambda: rig.watermarks == {"p1": 2})
    assert rig.count("requests") == 2


async def test_run_records_deleted_before_they_were_read_are_an_alarm(rig: Rig) -> None:
    rig.publish(1)
    await rig.until(lambda: rig.watermarks == {"p1": 1})
    rig.log.away = True
    rig.publish(2, 3, 4)
    rig.log.trim(TOPIC, 3)
    rig.log.away = False
    await rig.until(lambda: rig.count("requests") == 2)
    assert rig.count("retention_gaps") >= 1
    (producer,) = await rig.ledger.call(lambda ledger: ledger.producers())
    assert (producer.watermark, producer.num_missing) == (1, 2)


async def test_run_broken_record_does_not_block(rig: Rig) -> None:
    rig.log.append(TOPIC, b"\xff\xff")
    rig.publish(1)
    await rig.until(lambda: rig.watermarks == {"p1": 1})
    assert rig.count("quarantined_records") == 1
