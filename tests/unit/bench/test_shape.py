"""Shapes and points of the benchmark."""

import pytest

from bench.shape import Point, Shape


def test_shape_reads_what_it_writes() -> None:
    assert str(Shape.parse("1024:768:64")) == "1024:768:64"
    assert str(Point.parse("128:0:64@32")) == "128:0:64@32"
    assert str(Point.parse("text:128:0:64@8")) == "text:128:0:64@8"
    assert Shape.parse("text:128:0:64") == Shape(128, 0, 64, is_text=True)


@pytest.mark.parametrize(
    "text", ["", "128", "128:0", "10:11:1", "0:0:1", "10:0:0", "10:-1:1", "a:b:c", "1:2:3:4", "text:10:5:1", "text:", "x:1:0:1"]
)
def test_shape_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Shape.parse(text)


@pytest.mark.parametrize("text", ["128:0:64", "128:0:64@0", "128:0:64@x"])
def test_point_without_requests_in_flight_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Point.parse(text)


def test_two_waves_of_short_prompts_and_one_of_long_ones() -> None:
    wanted = {
        "128:0:64@8": 16,
        "1024:0:64@8": 8,
        "1024:768:64@8": 16,
        "1024:768:64@32": 32,
        "128:0:64@1": 6,
        "1024:0:64@1": 3,
        "1024:768:64@1": 3,
        "text:128:0:64@1": 12,
    }
    assert {text: Point.parse(text).num_requests for text in wanted} == wanted
