"""Usage records from the log, from bytes to entries of the ledger."""

import hashlib

from google.protobuf.message import DecodeError

from inferway.metering.v1 import records_pb2 as pb
from services.metering.records import AttemptEntry, Outcome, Record, RequestEntry, Unreadable
from services.metering.validity import fault_of

_REQUEST_OUTCOMES = {
    pb.REQUEST_OUTCOME_FINISHED: Outcome.FINISHED,
    pb.REQUEST_OUTCOME_CANCELLED: Outcome.CANCELLED,
    pb.REQUEST_OUTCOME_DEADLINE: Outcome.DEADLINE,
    pb.REQUEST_OUTCOME_FAILED: Outcome.FAILED,
    pb.REQUEST_OUTCOME_INTERRUPTED: Outcome.INTERRUPTED,
}
_ATTEMPT_OUTCOMES = {
    pb.ATTEMPT_OUTCOME_FINISHED: Outcome.FINISHED,
    pb.ATTEMPT_OUTCOME_CANCELLED: Outcome.CANCELLED,
    pb.ATTEMPT_OUTCOME_DEADLINE: Outcome.DEADLINE,
    pb.ATTEMPT_OUTCOME_FAILED: Outcome.FAILED,
}
_REQUEST_COPIED = tuple(field for field in RequestEntry.__dataclass_fields__ if field != "outcome")
_ATTEMPT_COPIED = tuple(field for field in AttemptEntry.__dataclass_fields__ if field != "outcome")


def from_bytes(value: bytes, now_unix_ms: int) -> Record | Unreadable:
    """A record with its fault, if it has one; Unreadable when the bytes are no record."""
    digest = hashlib.sha256(value).digest()
    message = pb.UsageRecord()
    try:
        message.ParseFromString(value)
    except DecodeError:
        return Unreadable(digest, value, "not a protobuf UsageRecord")
    kind = message.WhichOneof("record")
    if kind is None:
        return Unreadable(digest, value, "neither a request nor an attempt")
    entry, known = _request(message.request) if kind == "request" else _attempt(message.attempt)
    fault = fault_of(message.producer_id, message.sequence, entry, now_unix_ms) if known else "an outcome that this version does not know"
    return Record(message.producer_id, message.sequence, digest, entry, fault)


def _request(message: pb.RequestRecord) -> tuple[RequestEntry, bool]:
    outcome = _REQUEST_OUTCOMES.get(message.outcome)
    values = {name: getattr(message, name) for name in _REQUEST_COPIED}
    return RequestEntry(outcome=outcome or Outcome.FAILED, **values), outcome is not None


def _attempt(message: pb.AttemptRecord) -> tuple[AttemptEntry, bool]:
    outcome = _ATTEMPT_OUTCOMES.get(message.outcome)
    values = {name: getattr(message, name) for name in _ATTEMPT_COPIED}
    return AttemptEntry(outcome=outcome or Outcome.FAILED, **values), outcome is not None
