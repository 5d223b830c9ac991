"""Request records on their way to the ledger: durable in the outbox before anyone hears of the end of the request."""

from inferway.metering.v1 import records_pb2
from services.gateway.records import Outcome, SealedRequest
from services.kit.outbox import Outbox

_OUTCOMES = {
    Outcome.FINISHED: records_pb2.REQUEST_OUTCOME_FINISHED,
    Outcome.CANCELLED: records_pb2.REQUEST_OUTCOME_CANCELLED,
    Outcome.DEADLINE: records_pb2.REQUEST_OUTCOME_DEADLINE,
    Outcome.FAILED: records_pb2.REQUEST_OUTCOME_FAILED,
    Outcome.INTERRUPTED: records_pb2.REQUEST_OUTCOME_INTERRUPTED,
}


class UsageOutbox:
    """A RecordSink over the durable outbox."""

    def __init__(self, outbox: Outbox, topic: str) -> None:
        self._outbox = outbox
        self._topic = topic

    def require_room(self) -> None:
        """See RecordSink."""
        self._outbox.require_room()

    async def append(self, record: SealedRequest) -> None:
        """See RecordSink. Raises OutboxFull or OutboxUnavailable when the record could not be kept."""
        request = _to_proto(record)

        def make_value(producer_id: str, sequence: int) -> bytes:
            return records_pb2.UsageRecord(producer_id=producer_id, sequence=sequence, request=request).SerializeToString()

        await self._outbox.append(self._topic, record.tenant_id.encode(), make_value)


def _to_proto(record: SealedRequest) -> records_pb2.RequestRecord:
    return records_pb2.RequestRecord(
        charge_id=record.charge_id,
        request_id=record.request_id,
        completion_id=record.completion_id,
        tenant_id=record.tenant_id,
        key_id=record.key_id,
        model=record.model,
        model_version=record.model_version,
        outcome=_OUTCOMES[record.outcome],
        finish_reason=record.finish_reason,
        prompt_tokens=record.prompt_tokens,
        cached_prompt_tokens=record.cached_prompt_tokens,
        completion_tokens=record.completion_tokens,
        accepted_unix_ms=record.accepted_unix_ms,
        sealed_unix_ms=record.sealed_unix_ms,
        num_attempts=record.num_attempts,
        surface=record.surface,
        error_reason=record.error_reason,
        ttft_ms=record.ttft_ms,
    )
