"""What the engine has to reach beside the better peer, per point of the table."""

from dataclasses import dataclass

from bench.shape import Point

_RATIOS = {
    "128:0:64": {1: 2.0, 4: 2.0, 8: 1.8, 16: 1.5, 32: 1.5},
    "1024:0:64": {1: 1.5, 8: 1.5, 32: 1.5},
    "1024:768:64": {1: 1.5, 8: 1.5, 32: 1.5},
}
"""Least ratio of our output tokens per second to those of the better peer."""
QUICK = ("128:0:64@1", "128:0:64@8", "128:0:64@32", "1024:0:64@1")
TTFT_RATIO = 1.0
"""Our median time to the first token, at most so many times that of the better peer."""
ITL_P95_POINT = Point.parse("1024:0:64@32")
ITL_P95_RATIO = 0.25
"""At ITL_P95_POINT, our 95th percentile of gaps between chunks at most so many times vLLM's."""
START_S = 5.0
RSS_RATIO = 0.5
"""Of vLLM's, with room for equally many KV tokens."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One requirement and whether a run met it."""

    engine: str
    what: str
    wanted: str
    found: str
    is_met: bool


def points() -> list[Point]:
    """The whole table in order."""
    return [Point.parse(f"{shape}@{concurrency}") for shape, row in _RATIOS.items() for concurrency in row]


def least_ratio(point: Point) -> float | None:
    """The mark of a point; None where none was set."""
    return _RATIOS.get(str(point.shape), {}).get(point.concurrency)
