"""Drafts come from the last time that a sequence's last tokens stood together, and their number follows how many came true."""

from hypothesis import given
from hypothesis import strategies as st

from services.engine.drafter import NGRAM, Drafter


def test_propose_continues_as_the_last_time_the_last_tokens_stood_together() -> None:
    assert Drafter(8).propose([1, 2, 3, 40, 1, 2, 3, 50, 60, 1, 2, 3], 2) == [50, 60]


def test_propose_nothing_without_an_earlier_occurrence() -> None:
    assert Drafter(8).propose([9, 2, 3, 4, 8, 2, 3], 4) == []
    assert Drafter(8).propose([], 4) == Drafter(8).propose([1, 2], 4) == []


def test_propose_goes_round_when_what_follows_reaches_the_end() -> None:
    drafter = Drafter(8)
    drafter.learn(4, 4)
    assert drafter.propose([7, 5, 6, 5, 6, 5], 5) == [6, 5, 6, 5, 6]


def test_propose_is_not_misled_by_bytes_that_straddle_tokens() -> None:
    """As bytes 0x01000000 stands in the middle of the first two tokens; as a token it does not."""
    shifted = [0x00010000, 0, 0, 5]
    assert Drafter(8).propose([*shifted, 1, 0, 0], 4) == []


def test_propose_sees_tokens_that_came_since() -> None:
    drafter, tokens = Drafter(8), [1, 2, 3, 4]
    assert drafter.propose(tokens, 4) == []
    tokens += [1, 2, 3]
    assert drafter.propose(tokens, 1) == [4]


def lengths(learned: list[tuple[int, int]], max_drafts: int = 8) -> list[int]:
    """How many drafts are proposed in a loop of one token, after each of what was learned."""
    drafter, tokens = Drafter(max_drafts), [1] * 10
    found = [len(drafter.propose(tokens, 100))]
    for num_drafts, num_right in learned:
        drafter.learn(num_drafts, num_right)
        found.append(len(drafter.propose(tokens, 100)))
    return found


def test_drafts_double_while_right_up_to_the_most_and_shrink_to_what_was_right() -> None:
    assert lengths([(2, 2), (4, 4), (8, 8), (8, 3), (3, 3)]) == [2, 4, 8, 8, 3, 6]
    assert lengths([(2, 2), (3, 3)], max_drafts=3) == [2, 3, 3]


def test_drafts_pause_longer_with_every_miss_in_a_row() -> None:
    drafter, tokens = Drafter(8), [1] * 10
    pauses = []
    for _ in range(6):
        drafter.learn(1, 0)
        pauses.append(0)
        while not drafter.propose(tokens, 100):
            pauses[-1] += 1
    assert pauses == [1, 3, 7, 15, 15, 15]
    drafter.learn(1, 1)
    drafter.learn(2, 0)
    assert [len(drafter.propose(tokens, 100)) for _ in range(2)] == [0, 1]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 9))
def test_propose_is_what_a_plain_search_finds(tokens: list[int], most: int) -> None:
    drafter = Drafter(9)
    drafter.learn(9, 9)
    begins = [at for at in range(len(tokens) - NGRAM) if tokens[at : at + NGRAM] == tokens[-NGRAM:]]
    wanted = list(tokens)
    for at in range(begins[-1] + NGRAM, begins[-1] + NGRAM + most) if begins else ():
        wanted.append(wanted[at])
    assert drafter.propose(tokens, most) == wanted[len(tokens) :]
