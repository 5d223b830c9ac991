"""`inferway usage --json` prints the ledger's own fields, and numbers as numbers."""

from __future__ import annotations

from cli.usage import plain
from inferway.metering.v1 import metering_pb2


def test_plain_keeps_zeros_and_numbers_and_goes_into_attempts() -> None:
    attempt = metering_pb2.LedgerAttempt(attempt_id="a-1", prompt_tokens=7)
    request = metering_pb2.LedgerRequest(charge_id="c", sealed_unix_ms=1_900_000_000_000, attempts=[attempt])

    shown = plain(request)

    assert (shown["charge_id"], shown["sealed_unix_ms"], shown["completion_tokens"]) == ("c", 1_900_000_000_000, 0)
    assert shown["attempts"] == [{**plain(metering_pb2.LedgerAttempt()), "attempt_id": "a-1", "prompt_tokens": 7}]
