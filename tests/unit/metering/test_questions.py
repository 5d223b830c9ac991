"""Questions to the ledger: what is asked in another spelling means the same, and what cannot be meant is refused."""

import base64

import pytest

from services.kit.errors import FieldError
from services.metering import questions


@pytest.mark.parametrize("spelling", ["2026-07-01", "20260701", "2026-W27-3"])
def test_day_in_any_iso_spelling_is_the_day_that_the_ledger_compares(spelling: str) -> None:
    assert questions.day("from_day", spelling) == "2026-07-01"


@pytest.mark.parametrize("text", ["2026-7-1", "2026-02-30", "today", "2026-07-01T00:00"])
def test_day_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(FieldError) as caught:
        questions.day("to_day", text)
    assert caught.value.param == "to_day"


def test_page_token_comes_back_as_it_was_made() -> None:
    assert questions.after_token(questions.page_token(1_795_977_414_564, "charge")) == (1_795_977_414_564, "charge")


@pytest.mark.parametrize("content", [b"no colon", b"x:charge", b"9223372036854775808:charge", b"\xff:charge"])
def test_page_token_that_no_answer_gave_is_refused(content: bytes) -> None:
    with pytest.raises(FieldError):
        questions.after_token(base64.urlsafe_b64encode(content).decode())
