"""Processor time of serving is what the load took, not what the mesh takes anyway."""

from bench.hot_path import beyond_idle


def test_beyond_idle_takes_off_what_would_have_been_used_without_load() -> None:
    before, begin = {"gateway": 1.0, "gone": 1.0}, {"gateway": 1.5, "gone": 1.0}
    end = {"gateway": 5.5, "new": 1.0}
    assert beyond_idle(before, begin, end, num_idle_times=2.0) == {"gateway": 3.0}
