"""Ids are unique, of the promised form, and hold what they promise."""

import uuid

import pytest

from services.gateway import ids


def test_charge_id_is_a_uuid_of_version_7_that_sorts_by_time() -> None:
    early, late = uuid.UUID(ids.charge_id(1_000)), uuid.UUID(ids.charge_id(2_000))
    assert (early.version, early.variant) == (7, uuid.RFC_4122)
    assert early.int >> 80 == 1_000
    assert early < late
    assert len({ids.charge_id(5) for _ in range(1000)}) == 1000


def test_completion_id_is_ours_and_unique() -> None:
    found = {ids.completion_id() for _ in range(1000)}
    assert len(found) == 1000
    assert all(name.startswith("chatcmpl-") for name in found)
    assert ids.completion_id(is_chat=False).startswith("cmpl-")


def test_attempt_id_differs_by_choice_and_number() -> None:
    assert len({ids.attempt_id("c", choice, number) for choice in range(20) for number in range(20)}) == 400


def test_new_secret_has_256_bits_and_is_a_secret() -> None:
    secret = ids.new_secret()
    assert len(secret) == len("ifw-") + 43
    assert ids.is_secret(secret)
    assert ids.new_secret() != secret


@pytest.mark.parametrize(
    "text", ["", "short", "ifw-" + "a" * 300, "ifw-aaaaaaaaaaaaaaa aaaaaaaaaaaa", "a" * 30 + ",", "\u00e9" * 30, "a" * 30 + "\n"]
)
def test_is_secret_what_is_not_one_token_is_none(text: str) -> None:
    assert not ids.is_secret(text)
