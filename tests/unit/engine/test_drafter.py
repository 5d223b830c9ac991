"""Drafts come from the last time that a sequence's last tokens stood together; how many follows what came true and what a row costs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.drafter import Drafter, Odds, price

FREE, DEAR = 0.0, 1.0


def propose(tokens: list[int], most: int = 4) -> list[int]:
    return Drafter(Odds(), 16).propose(tokens, most, FREE)


def test_propose_continues_as_the_last_time_the_last_tokens_stood_together() -> None:
    assert propose([1, 2, 3, 40, 1, 2, 3, 50, 60, 1, 2, 3], 2) == [50, 60]


def test_propose_prefers_what_more_tokens_speak_for() -> None:
    assert propose([1, 2, 3, 40, 9, 2, 3, 50, 8, 3, 60, 1, 2, 3], 1) == [40]
    assert propose([1, 2, 3, 40, 9, 2, 3, 50, 8, 3, 60, 7, 2, 3], 1) == [50]
    assert propose([1, 2, 3, 40, 9, 2, 3, 50, 8, 3, 60, 7, 6, 3], 1) == [60]


def test_propose_nothing_without_an_earlier_occurrence() -> None:
    assert propose([9, 2, 3, 4, 8]) == propose([]) == propose([5]) == propose([1, 2]) == []


def test_propose_goes_round_when_what_follows_reaches_the_end() -> None:
    assert propose([7, 5, 6, 5, 6, 5]) == [6, 5, 6, 5]
    assert propose([5, 5]) == [5, 5, 5, 5]


def test_propose_is_not_misled_by_bytes_that_straddle_tokens() -> None:
    """As bytes, 1 stands between the first two tokens; as a token it does not."""
    assert propose([0x00010000, 0, 5, 1]) == []
    assert propose([0x00010000, 0, 5, 1, 8, 0x00010000, 0, 7, 1], 1) == [8]


def test_propose_sees_tokens_that_came_since() -> None:
    drafter, tokens = Drafter(Odds(), 16), [1, 2, 3, 4]
    assert drafter.propose(tokens, 4, FREE) == []
    tokens += [1, 2, 3]
    assert drafter.propose(tokens, 1, FREE) == [4]


def lengths(learned: list[tuple[int, int]], max_drafts: int = 16) -> list[int]:
    """How many drafts are proposed in a loop of one token, after each of what was learned."""
    drafter, tokens = Drafter(Odds(), max_drafts), [1] * 10
    found = [len(drafter.propose(tokens, 100, FREE))]
    for num_drafts, num_right in learned:
        drafter.learn(num_drafts, num_right)
        found.append(len(drafter.propose(tokens, 100, FREE)))
    return found


def test_drafts_double_while_right_up_to_the_most_and_shrink_to_what_was_right() -> None:
    assert lengths([(4, 4), (8, 8), (16, 16), (16, 3), (3, 3), (6, 0), (1, 1)]) == [4, 8, 16, 16, 3, 6, 1, 2]
    assert lengths([(2, 2), (5, 5)], max_drafts=5) == [4, 4, 5]


def test_fewer_drafts_than_were_wanted_do_not_shrink_the_next() -> None:
    assert lengths([(4, 4), (8, 8), (2, 2)]) == [4, 8, 16, 16]


def test_drafts_that_are_seldom_right_are_left_where_rows_are_dear_but_tried_now_and_then() -> None:
    odds, tokens = Odds(), [1] * 10
    for _ in range(100):
        odds.learn(3, False)
    drafter = Drafter(odds, 16)
    assert len(drafter.propose(tokens, 9, FREE)) == 4
    tried = [len(drafter.propose(tokens, 9, 0.4)) for _ in range(32)]
    assert sorted(tried) == [0] * 30 + [1, 1]
    for _ in range(100):
        odds.learn(3, True)
    assert len(drafter.propose(tokens, 9, 0.4)) == 4


def test_drafts_go_as_far_as_the_last_one_is_worth_its_price() -> None:
    assert [Odds().most(3, asked, 100) for asked in (0.79, 0.65, 0.6, 0.5, 0.2)] == [1, 1, 2, 3, 7]
    assert Odds().most(3, FREE, 100) == 100
    sure = Odds()
    for _ in range(2000):
        sure.learn(3, True)
    assert sure.most(3, 0.8, 100) == 100


def test_odds_are_those_of_as_many_tokens() -> None:
    odds = Odds()
    for _ in range(100):
        odds.learn(1, True)
        odds.learn(3, False)
    assert [odds.most(length, 0.5, 9) for length in (1, 2, 3)] == [9, 1, 0]


def test_odds_are_learned_for_the_length_that_was_found() -> None:
    odds = Odds()
    drafter = Drafter(odds, 16)
    for _ in range(60):
        assert drafter.propose([1, 2, 3, 4, 9, 8, 4], 1, FREE) == [9]
        drafter.learn(1, 1)
    assert odds.most(1, 0.7, 5) == 5
    assert odds.most(3, 0.9, 5) == 0


def test_price_grows_with_the_batch_and_stays_below_that_of_a_token() -> None:
    prices = [price(count) for count in (0, 1, 2, 8, 32, 1000)]
    assert all(less < more for less, more in pairwise(prices))
    assert (prices[0], round(prices[1], 2), round(prices[-1], 2)) == (0.0, 0.13, 0.9)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 16))
def test_propose_is_what_a_plain_search_finds(tokens: list[int], most: int) -> None:
    drafter = Drafter(Odds(), 16)
    drafter.learn(16, 16)
    wanted = list(tokens)
    for length in (3, 2, 1):
        begins = [at for at in range(len(tokens) - length) if tokens[at : at + length] == tokens[-length:]]
        if begins:
            for at in range(begins[-1] + length, begins[-1] + length + most):
                wanted.append(wanted[at])
            break
    assert drafter.propose(tokens, most, FREE) == wanted[len(tokens) :]


@pytest.mark.parametrize("wanted", [0, 1, 7])
def test_odds_never_allow_more_than_is_wanted(wanted: int) -> None:
    odds = Odds()
    assert {odds.most(1, asked, wanted) for asked in (FREE, DEAR) for _ in range(20)} == {0, min(wanted, 1), wanted}
