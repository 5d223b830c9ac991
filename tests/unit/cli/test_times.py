"""Times as people read them."""

from __future__ import annotations

import pytest

from cli.times import day_of, moment_of, span


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0s"), (9.9, "9s"), (61, "1m01s"), (3600, "1h00m"), (90061, "25h01m")])
def test_span_shows_the_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_days_and_moments_are_in_utc() -> None:
    assert day_of(86_400_000 - 1) == "1970-01-01"
    assert moment_of(86_400_000 - 1) == "1970-01-01 23:59:59"
