"""Metering's RPCs on loopback over a ledger with known content, and the watermark in a real etcd."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from inferway.metering.v1 import metering_pb2 as pb
from inferway.metering.v1 import metering_pb2_grpc
from services.kit import status
from services.kit.channel import connect
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings, ServiceState, serve
from services.metering.ledger.sqlite import SqliteLedger
from services.metering.ledger.thread import LedgerThread
from services.metering.log_ends import LogEnds
from services.metering.servicer.unserved import BillingServicer, QuotaServicer
from services.metering.servicer.usage import UsageServicer
from tests.harness.usage import NOW_MS, attempt_record, batch, request_record


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    ledger = LedgerThread(lambda: SqliteLedger(":memory:"), "test")
    records = [request_record(sequence=n, sealed_unix_ms=NOW_MS + n) for n in range(1, 4)]
    await ledger.call(lambda open_ledger: open_ledger.apply(batch([*records, request_record(sequence=5), attempt_record()])))
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()

    def register(server: grpc.aio.Server) -> list[str]:
        metering_pb2_grpc.add_UsageServicer_to_server(UsageServicer(ledger, LogEnds()), server)
        metering_pb2_grpc.add_QuotaServicer_to_server(QuotaServicer(), server)
        metering_pb2_grpc.add_BillingServicer_to_server(BillingServicer(), server)
        return []

    async def run(state: ServiceState) -> None:
        ready.set_result(state.port)
        await asyncio.Event().wait()

    task = asyncio.ensure_future(serve(ServerSettings(), name="metering", registry=new_registry(), register=register, run=run, stop=stop))
    async with connect(f"127.0.0.1:{await ready}") as channel:
        yield channel
    stop.set()
    await task
    ledger.close()


async def test_query_usage_sums_by_tenant_and_day(channel: grpc.aio.Channel) -> None:
    group_by = [pb.USAGE_DIMENSION_TENANT, pb.USAGE_DIMENSION_DAY]
    answer = await metering_pb2_grpc.UsageStub(channel).QueryUsage(pb.QueryUsageRequest(group_by=group_by), timeout=5)
    (row,) = answer.rows
    assert (row.tenant_id, row.model, row.num_requests, row.prompt_tokens, row.completion_tokens) == ("acme", "", 4, 40, 20)


async def test_list_requests_pages_until_the_token_is_empty(channel: grpc.aio.Channel) -> None:
    stub, seen, token = metering_pb2_grpc.UsageStub(channel), [], ""
    for _ in range(4):
        answer = await stub.ListRequests(pb.ListRequestsRequest(page_size=2, page_token=token), timeout=5)
        seen += [request.charge_id for request in answer.requests]
        token = answer.next_page_token
        if not token:
            break
    assert seen == ["p1-3", "p1-2", "p1-1", "p1-5"]


async def test_list_requests_shows_the_engine_side(channel: grpc.aio.Channel) -> None:
    answer = await metering_pb2_grpc.UsageStub(channel).ListRequests(pb.ListRequestsRequest(ids=["p1-1"]), timeout=5)
    (request,) = answer.requests
    assert (request.outcome, request.completion_tokens, request.attempts[0].output_tokens) == ("finished", 5, 5)


async def test_ledger_status_names_the_gap(channel: grpc.aio.Channel) -> None:
    answer = await metering_pb2_grpc.UsageStub(channel).GetLedgerStatus(pb.GetLedgerStatusRequest(), timeout=5)
    producer = next(row for row in answer.producers if row.producer_id == "p1")
    assert (producer.watermark, producer.highest_sequence, producer.num_missing) == (3, 5, 1)
    assert answer.partitions[0].next_offset == 5


@pytest.mark.parametrize(
    ("method", "request_", "param"),
    [
        ("QueryUsage", pb.QueryUsageRequest(from_day="yesterday"), "from_day"),
        ("QueryUsage", pb.QueryUsageRequest(group_by=[0]), "group_by"),
        ("ListRequests", pb.ListRequestsRequest(page_size=0), "page_size"),
        ("ListRequests", pb.ListRequestsRequest(page_token="!"), "page_token"),
        ("ListRequests", pb.ListRequestsRequest(ids=["x"] * 1001), "ids"),
    ],
)
async def test_bad_question_names_the_field(channel: grpc.aio.Channel, method: str, request_: object, param: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(metering_pb2_grpc.UsageStub(channel), method)(request_, timeout=5)
    assert status.from_rpc_error(caught.value).metadata == {"param": param}


async def test_unserved_method_says_so(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await metering_pb2_grpc.QuotaStub(channel).Reserve(pb.ReserveRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "quotas are not enforced yet" in (caught.value.details() or "")
