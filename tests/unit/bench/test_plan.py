"""Which points are measured, and who takes part."""

from bench import marks, plan
from bench.shape import Point


def test_points_are_those_of_the_marks_and_where_wanted_some_of_text() -> None:
    assert plan.points(is_quick=False, with_text=False) == marks.points()
    assert [str(point) for point in plan.points(is_quick=True, with_text=True)] == [*marks.QUICK, *(str(point) for point in plan.TEXT)]


def test_server_that_is_judged_is_measured_everywhere() -> None:
    everywhere = [*marks.points(), *plan.TEXT]
    assert all(plan.takes_part(name, point) for name in ("inferway", "inferway 15-bit", "vllm", "vllm-ngram") for point in everywhere)
    assert all(plan.takes_part("llama.cpp", point) for point in marks.points())


def test_peer_whose_guesses_win_for_one_request_guesses_there() -> None:
    measured = [str(point) for point in [*marks.points(), *plan.TEXT] if plan.takes_part("llama.cpp-ngram", point)]
    assert measured == ["128:0:64@1", "1024:0:64@1", "1024:768:64@1", "text:128:0:64@1"]


def test_ours_without_speculation_is_measured_at_some_points_of_both_kinds() -> None:
    measured = [point for point in [*marks.points(), *plan.TEXT] if plan.takes_part("inferway-plain", point)]
    assert {point.shape.is_text for point in measured} == {True, False}
    assert Point.parse("1024:768:64@32") not in measured


def test_only_servers_that_differ_in_more_than_guesses_are_looked_at() -> None:
    assert [name for name in ("inferway", "inferway-plain", "vllm", "vllm-ngram", "llama.cpp-ngram") if plan.has_looks(name)] == [
        "inferway",
        "vllm",
    ]
