"""Prompts of the benchmark."""

import json

import pytest

from bench import prompts
from bench.prompts import piece, prompts_of, random_prompt
from bench.shape import Shape


def test_prompts_share_exactly_what_the_shape_says() -> None:
    shape = Shape(40, 30, 1)
    first, second = prompts_of(shape, 1, 2)
    assert len(first) == len(second) == 40
    assert first[:30] == second[:30]
    assert first[30:] != second[30:]
    assert first == random_prompt(shape, 1)


def test_pieces_of_text_begin_at_different_places_until_all_were_had() -> None:
    ids = list(range(100))
    found = [piece(ids, 10, serial) for serial in range(7, 7 + 91)]
    assert sorted(one[0] for one in found) == list(range(91))
    assert all(one == ids[one[0] : one[0] + 10] for one in found)


def test_text_as_long_as_a_piece_is_one_and_a_shorter_one_is_refused() -> None:
    assert piece([1, 2], 2, 5) == [1, 2]
    with pytest.raises(ValueError, match="2 tokens"):
        piece([1, 2], 3, 5)


def test_texts_are_questions_of_both_kinds() -> None:
    entries = [entry for text in prompts.TEXTS for entry in json.loads(text.read_text(encoding="utf-8"))]
    assert {type(entry) for entry in entries} == {str, list}
