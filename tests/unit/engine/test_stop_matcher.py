"""Stop strings are found wherever pieces are cut, and nothing but a possible stop is held back."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.stop_matcher import StopMatcher


def feed(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    text = "".join(matcher.push(piece) for piece in pieces)
    return text + matcher.finish(), matcher.stop


def reference(stops: list[str], text: str) -> tuple[str, str | None]:
    """The stop that is complete first, by trying every end; the longest of several."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


@pytest.mark.parametrize("stop", ["STOP", "\n\n", "aab", "éé", "👨‍👩‍👧"])
def test_push_stop_cut_at_every_point_is_found(stop: str) -> None:
    text = f"before{stop}after"
    for cut in range(len(text) + 1):
        assert feed([stop], [text[:cut], text[cut:]]) == ("before", stop)
    assert feed([stop], list(text)) == ("before", stop)


@pytest.mark.parametrize(
    ("stops", "text", "expected"),
    [
        (["foo", "foobar"], "xfoobar", ("x", "foo")),
        (["foobar", "bar"], "xfoobar", ("x", "foobar")),
        (["xabc", "ab"], "xab", ("x", "ab")),
        (["aaab"], "aaaab", ("a", "aaab")),
        (["abab", "bac"], "ababac", ("", "abab")),
        (["END"], "EN", ("EN", None)),
        (["ENDE"], "ENDENDX", ("", "ENDE")),
        ([], "anything", ("anything", None)),
    ],
)
def test_push_several_stops_the_first_complete_wins(stops: list[str], text: str, expected: tuple[str, str | None]) -> None:
    assert feed(stops, [text]) == expected == feed(stops, list(text))


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=5), max_size=6),
)
def test_push_agrees_with_a_search_of_the_whole_text(stops: list[str], pieces: list[str]) -> None:
    assert feed(stops, pieces) == reference(stops, "".join(pieces))


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), st.text("abc", max_size=12))
def test_push_holds_back_only_what_may_become_a_stop(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    released = "".join(matcher.push(character) for character in text)
    if matcher.stop is None:
        held = text[len(released) :]
        prefixes = {stop[:length] for stop in stops for length in range(len(stop))}
        longest = max((text[start:] for start in range(len(text) + 1) if text[start:] in prefixes), key=len)
        assert held == longest


def test_push_after_a_match_swallows_everything() -> None:
    matcher = StopMatcher(["x"])
    assert [matcher.push("ax"), matcher.push("bx"), matcher.finish()] == ["a", "", ""]
    assert matcher.stop == "x"


def test_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError):
        StopMatcher(["ok", ""])


def test_push_long_stop_and_hostile_text_takes_linear_time() -> None:
    """Quadratic work would be 4e8 comparisons here and run into the test's time limit."""
    stop = "a" * 20_000 + "b"
    text = list(itertools.repeat("a", 40_000))
    assert feed([stop], text) == ("a" * 40_000, None)
