"""Compares what clients were told with the ledger, record by record."""

from __future__ import annotations

from collections.abc import Sequence

from inferway.metering.v1 import metering_pb2 as pb
from inferway.metering.v1 import metering_pb2_grpc
from services.kit.channel import connect
from tests.harness.eventually import eventually
from tests.harness.measure import nothing_waits
from tests.harness.mesh import Mesh
from tests.harness.traffic import Told


class Bill:
    """The ledger of a mesh, through metering's RPCs."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._address = f"127.0.0.1:{mesh.ports.metering_grpc}"

    async def rows(self, completion_ids: Sequence[str]) -> dict[str, list[pb.LedgerRequest]]:
        """Ledger rows by completion id."""
        found: dict[str, list[pb.LedgerRequest]] = {}
        async with connect(self._address) as channel:
            stub = metering_pb2_grpc.UsageStub(channel)
            for begin in range(0, len(completion_ids), 500):
                ids = completion_ids[begin : begin + 500]
                answer = await stub.ListRequests(pb.ListRequestsRequest(ids=ids, page_size=1000), timeout=10)
                for row in answer.requests:
                    found.setdefault(row.completion_id, []).append(row)
        return found

    async def until_rows(self, completion_ids: Sequence[str], num_attempts: int = 1, timeout_s: float = 30.0) -> list[pb.LedgerRequest]:
        """Waits until the ledger has all there is about these answers; their rows in the same order. One row for each, or it fails.

        That is when each has its row and at least `num_attempts` attempts, and no record waits in any outbox: a row and its attempts come
        from different processes, in any order. The answers must have ended, and so must any others.
        """
        rows: dict[str, list[pb.LedgerRequest]] = {}

        async def arrived() -> bool:
            nonlocal rows
            all_sent = await nothing_waits(self._mesh)
            rows = await self.rows(completion_ids)
            return all_sent and all(
                completion_id in rows and len(rows[completion_id][0].attempts) >= num_attempts for completion_id in completion_ids
            )

        await eventually(arrived, timeout_s)
        assert {len(found) for found in rows.values()} == {1}
        return [rows[completion_id][0] for completion_id in completion_ids]

    async def status(self) -> pb.GetLedgerStatusResponse:
        """How far the ledger is."""
        async with connect(self._address) as channel:
            answer: pb.GetLedgerStatusResponse = await metering_pb2_grpc.UsageStub(channel).GetLedgerStatus(
                pb.GetLedgerStatusRequest(), timeout=10
            )
        return answer

    async def until_equal(self, told: Sequence[Told], timeout_s: float = 60.0) -> None:
        """Waits until the ledger has all there is about the completed answers, then compares all fields, attempts and its own health.

        Of an answer that went on elsewhere that is the attempt that finished it: one that died with its replica has no record. No record
        waits in any outbox, so that nothing can come that would make it differ.
        """
        answers = [one for one in told if not one.failure]
        ids = [one.completion_id for one in answers]
        rows: dict[str, list[pb.LedgerRequest]] = {}

        async def arrived() -> bool:
            nonlocal rows
            all_sent = await nothing_waits(self._mesh)
            rows = await self.rows(ids)
            return all_sent and len(rows) == len(ids) and all(is_finished(row) for (row, *_) in rows.values())

        await eventually(arrived, timeout_s)
        assert [problem for one in answers for problem in differences(one, rows[one.completion_id])] == []
        status = await self.status()
        assert (status.num_conflicts, status.num_quarantined) == (0, 0)
        assert [producer.num_missing for producer in status.producers if producer.num_missing] == []


def is_finished(row: pb.LedgerRequest) -> bool:
    """Whether the attempt that brought the answer to its end is there."""
    return any(attempt.outcome == "finished" for attempt in row.attempts)


def differences(told: Told, rows: Sequence[pb.LedgerRequest]) -> list[str]:
    """What differs between an answer and its row: usage, outcome, and the engines' word where one attempt did it all."""
    if len(rows) != 1:
        return [f"{told.completion_id}: {len(rows)} rows"]
    (row,) = rows
    problems = []
    if (row.prompt_tokens, row.completion_tokens) != (told.prompt_tokens, told.completion_tokens):
        was_told, billed = f"{told.prompt_tokens}+{told.completion_tokens}", f"{row.prompt_tokens}+{row.completion_tokens}"
        problems.append(f"{told.completion_id}: told {was_told}, billed {billed}")
    if (row.outcome, row.surface) != ("finished", told.surface):
        problems.append(f"{told.completion_id}: {row.outcome} on {row.surface}")
    last = row.attempts[-1]
    if last.output_tokens + last.resumed_tokens != row.completion_tokens:
        counted = f"{last.output_tokens} after {last.resumed_tokens} resumed"
        problems.append(f"{told.completion_id}: the engine counted {counted}, billed {row.completion_tokens}")
    return problems
