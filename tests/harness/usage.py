"""Usage records for tests: valid ones, with any field replaced."""

from collections.abc import Sequence
from typing import Any

from inferway.metering.v1 import records_pb2 as pb
from services.metering.clients.usage_records import from_bytes
from services.metering.records import Batch, Record, Unreadable

NOW_MS = 1_790_000_000_000


def request_record(producer: str = "p1", sequence: int = 1, **fields: Any) -> pb.UsageRecord:
    """A finished request of tenant acme with 10 prompt and 5 output tokens."""
    values = {
        "charge_id": f"{producer}-{sequence}",
        "request_id": f"r-{producer}-{sequence}",
        "completion_id": f"chatcmpl-{producer}-{sequence}",
        "tenant_id": "acme",
        "key_id": "key_1",
        "model": "m1",
        "model_version": "v1",
        "outcome": pb.REQUEST_OUTCOME_FINISHED,
        "finish_reason": "stop",
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "accepted_unix_ms": NOW_MS - 1000,
        "sealed_unix_ms": NOW_MS,
        "num_attempts": 1,
        "surface": "rest",
    }
    return pb.UsageRecord(producer_id=producer, sequence=sequence, request=pb.RequestRecord(**{**values, **fields}))


def attempt_record(producer: str = "e1", sequence: int = 1, **fields: Any) -> pb.UsageRecord:
    """A finished attempt of the request that request_record makes for p1/1."""
    values = {
        "attempt_id": f"a-{producer}-{sequence}",
        "charge_id": "p1-1",
        "request_id": "r-p1-1",
        "tenant_id": "acme",
        "model": "m1",
        "model_version": "v1",
        "replica_id": "m1-0",
        "outcome": pb.ATTEMPT_OUTCOME_FINISHED,
        "prompt_tokens": 10,
        "output_tokens": 5,
        "started_unix_ms": NOW_MS - 900,
        "ended_unix_ms": NOW_MS,
    }
    return pb.UsageRecord(producer_id=producer, sequence=sequence, attempt=pb.AttemptRecord(**{**values, **fields}))


def decoded(message: pb.UsageRecord) -> Record | Unreadable:
    """As metering decodes it, at NOW_MS."""
    return from_bytes(message.SerializeToString(), NOW_MS)


def batch(
    records: Sequence[pb.UsageRecord | Record | Unreadable], first_offset: int = 0, topic_id: str = "t1", partition: int = 0
) -> Batch:
    """Consecutive offsets of usage.requests.v1."""
    entries = tuple(decoded(record) if isinstance(record, pb.UsageRecord) else record for record in records)
    return Batch("usage.requests.v1", partition, topic_id, first_offset, first_offset + len(entries), entries)
