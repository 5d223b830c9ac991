"""Which points a session measures, and which servers stand in for themselves at each of them: it has to end within half an hour."""

from bench import marks
from bench.row import PLAIN
from bench.shape import Point

LLAMA_CPP_NGRAM, VLLM_NGRAM = "llama.cpp-ngram", "vllm-ngram"
TEXT = tuple(Point.parse(f"text:128:0:64@{concurrency}") for concurrency in (1, 8, 32))
"""Beside the points of the marks, all of whose prompts are random ids."""
_FEW = {Point.parse(f"128:0:64@{concurrency}") for concurrency in (1, 8, 32)} | {Point.parse("1024:0:64@8"), *TEXT}
_ALONE = {point for point in (*marks.points(), *TEXT) if point.concurrency == 1}
_ONLY = {PLAIN: _FEW, "llama.cpp": {*marks.points(), *TEXT[:2]}, LLAMA_CPP_NGRAM: _ALONE}
"""llama.cpp's guesses win at one request in flight; with more, and at 32 with text, vLLM is faster than it with and without them."""


def points(is_quick: bool, with_text: bool) -> list[Point]:
    """Where nobody names some."""
    found = [Point.parse(name) for name in marks.QUICK] if is_quick else marks.points()
    return found + (list(TEXT) if with_text else [])


def takes_part(name: str, point: Point) -> bool:
    """Whether a server is measured at one of those points."""
    return name not in _ONLY or point in _ONLY[name]


def everywhere(name: str, point: Point) -> bool:
    """Every server at every point: what somebody wants who names points."""
    return True


def has_looks(name: str) -> bool:
    """Whether a server is also looked at alone; one that differs from another only in its guesses is not."""
    return name not in (PLAIN, LLAMA_CPP_NGRAM, VLLM_NGRAM)
