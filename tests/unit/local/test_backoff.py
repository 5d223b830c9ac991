"""The restart pause: doubling, bounded, forgiven after a long life."""

from __future__ import annotations

from deploy.local.backoff import HEALTHY_AFTER_S, MAX_S, Backoff


def test_backoff_of_early_deaths_doubles_up_to_its_bound() -> None:
    delays, backoff = list[float](), Backoff()
    for _ in range(8):
        backoff = backoff.after_death(alive_s=0.5)
        delays.append(backoff.delay_s)

    assert delays == [1, 2, 4, 8, 16, MAX_S, MAX_S, MAX_S]


def test_backoff_after_a_long_life_begins_anew() -> None:
    backoff = Backoff(num_deaths=7)

    assert backoff.after_death(HEALTHY_AFTER_S).delay_s == 1
    assert backoff.after_death(HEALTHY_AFTER_S - 0.1).delay_s == MAX_S


def test_backoff_of_a_child_that_never_stays_up_stays_finite() -> None:
    assert Backoff(num_deaths=100_000).delay_s == MAX_S
