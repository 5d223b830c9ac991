"""inferway.metering.v1.Usage over the ledger."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import grpc

from inferway.metering.v1 import metering_pb2 as pb
from inferway.metering.v1 import metering_pb2_grpc
from services.kit.errors import FieldError
from services.metering import questions
from services.metering.ledger.interface import Dimension, RequestFilter, UsageFilter
from services.metering.ledger.thread import LedgerThread
from services.metering.log_ends import LogEnds
from services.metering.records import AttemptEntry, RequestEntry

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"

_DIMENSIONS = {
    pb.USAGE_DIMENSION_TENANT: Dimension.TENANT,
    pb.USAGE_DIMENSION_MODEL: Dimension.MODEL,
    pb.USAGE_DIMENSION_DAY: Dimension.DAY,
}


class UsageServicer(metering_pb2_grpc.UsageServicer):
    """Reads through its own connection, so that a long question does not hold up the ingest."""

    def __init__(self, ledger: LedgerThread, log_ends: LogEnds) -> None:
        self._ledger, self._log_ends = ledger, log_ends

    async def QueryUsage(self, request: pb.QueryUsageRequest, context: Context) -> pb.QueryUsageResponse:
        """See the contract."""
        group_by = _group_by(request)
        where = UsageFilter(
            tenant_id=request.tenant_id,
            model=request.model,
            from_day=questions.day("from_day", request.from_day),
            to_day=questions.day("to_day", request.to_day),
        )
        sums = await self._ledger.call(lambda ledger: ledger.usage(group_by, where))
        return pb.QueryUsageResponse(rows=[pb.UsageRow(**_values(row)) for row in sums])

    async def ListRequests(self, request: pb.ListRequestsRequest, context: Context) -> pb.ListRequestsResponse:
        """See the contract."""
        size = questions.page_size(request.page_size if request.HasField("page_size") else None)
        where = RequestFilter(
            tenant_id=request.tenant_id,
            ids=questions.ids(tuple(request.ids)),
            from_unix_ms=request.from_unix_ms if request.HasField("from_unix_ms") else None,
            to_unix_ms=request.to_unix_ms if request.HasField("to_unix_ms") else None,
            before=questions.after_token(request.page_token),
            limit=size + 1,
        )
        found = await self._ledger.call(lambda ledger: ledger.requests(where))
        page, last = found[:size], found[size - 1][0] if len(found) > size else None
        token = questions.page_token(last.sealed_unix_ms, last.charge_id) if last is not None else ""
        return pb.ListRequestsResponse(requests=[_request(entry, attempts) for entry, attempts in page], next_page_token=token)

    async def GetLedgerStatus(self, request: pb.GetLedgerStatusRequest, context: Context) -> pb.GetLedgerStatusResponse:
        """See the contract."""
        producers = await self._ledger.call(lambda ledger: ledger.producers())
        positions = await self._ledger.call(lambda ledger: ledger.positions())
        totals = await self._ledger.call(lambda ledger: ledger.totals())
        ends = self._log_ends.snapshot()
        return pb.GetLedgerStatusResponse(
            producers=[
                pb.ProducerStatus(
                    producer_id=producer.producer_id,
                    watermark=producer.watermark,
                    highest_sequence=producer.highest,
                    num_missing=producer.num_missing,
                )
                for producer in producers
            ],
            partitions=[
                pb.PartitionStatus(**_values(position), end_offset=ends.get((position.topic, position.partition), -1))
                for position in positions
            ],
            num_quarantined=totals.num_quarantined,
            num_duplicates=totals.num_duplicates,
            num_conflicts=totals.num_conflicts,
            num_topic_resets=totals.num_topic_resets,
        )


def _group_by(request: pb.QueryUsageRequest) -> list[Dimension]:
    unknown = [value for value in request.group_by if value not in _DIMENSIONS]
    if unknown or len(set(request.group_by)) != len(request.group_by):
        raise FieldError("group_by", "takes each of TENANT, MODEL and DAY at most once")
    return [_DIMENSIONS[value] for value in request.group_by]


def _values(row: object) -> dict[str, Any]:
    return {name: getattr(row, name) for name in type(row).__dataclass_fields__}  # type: ignore[attr-defined]


def _request(entry: RequestEntry, attempts: Sequence[AttemptEntry]) -> pb.LedgerRequest:
    shown = {name: value for name, value in _values(entry).items() if name in pb.LedgerRequest.DESCRIPTOR.fields_by_name}
    return pb.LedgerRequest(**shown, attempts=[_attempt(attempt) for attempt in attempts])


def _attempt(entry: AttemptEntry) -> pb.LedgerAttempt:
    shown = {name: value for name, value in _values(entry).items() if name in pb.LedgerAttempt.DESCRIPTOR.fields_by_name}
    return pb.LedgerAttempt(**shown)
