"""Reasons of engines and routers become errors with the code that the catalogue gives them."""

import pytest

from services.gateway.failures import typed_error


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("QUEUE_FULL", "RESOURCE_EXHAUSTED"),
        ("ENGINE_QUEUE_FULL", "RESOURCE_EXHAUSTED"),
        ("OUTBOX_FULL", "RESOURCE_EXHAUSTED"),
        ("QUEUE_TIMEOUT", "DEADLINE_EXCEEDED"),
        ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"),
        ("NO_READY_REPLICA", "UNAVAILABLE"),
        ("REPLICA_LOST", "UNAVAILABLE"),
        ("DRAINING", "UNAVAILABLE"),
        ("CONTEXT_LENGTH_EXCEEDED", "INVALID_ARGUMENT"),
        ("MODEL_CORRUPT", "DATA_LOSS"),
        ("STEP_FAILED", "INTERNAL"),
        ("INVALID_FIELD", "INVALID_ARGUMENT"),
        ("TOKEN_OUT_OF_RANGE", "INVALID_ARGUMENT"),
        ("UNSUPPORTED_FIELD", "INVALID_ARGUMENT"),
        ("", "INTERNAL"),
        ("SOMETHING_NEW", "INTERNAL"),
    ],
)
def test_typed_error_has_the_code_of_its_reason(reason: str, code: str) -> None:
    error = typed_error(reason, "what happened")
    assert (error.code, error.reason) == (code, reason or "INTERNAL")
    assert ("what happened" in error.message) == (code != "INTERNAL")
    assert (error.retry_after_s is not None) == (code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE"))


def test_typed_error_keeps_the_time_that_the_router_names() -> None:
    assert typed_error("QUEUE_FULL", "", 7.5).retry_after_s == 7.5


def test_typed_error_long_message_is_cut_to_what_trailers_can_carry() -> None:
    assert len(typed_error("QUEUE_FULL", "x" * 100_000).message) == 300
