"""The pause before a restart."""

from services.engine.node.backoff import FORGIVEN_AFTER_S, Backoff


def test_backoff_early_ends_double_the_pause_up_to_the_bound() -> None:
    backoff, delays = Backoff(), []
    for _ in range(8):
        backoff = backoff.after_end(0.5)
        delays.append(backoff.delay_s)
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30]


def test_backoff_long_life_forgives_earlier_ends() -> None:
    backoff = Backoff(num_ends=7)
    assert backoff.after_end(FORGIVEN_AFTER_S - 0.1).delay_s == 30
    assert backoff.after_end(FORGIVEN_AFTER_S).delay_s == 1


def test_backoff_thousand_ends_stay_at_the_bound() -> None:
    assert Backoff(num_ends=5000).delay_s == 30


def test_backoff_nothing_ended_no_pause() -> None:
    assert Backoff().delay_s == 0
