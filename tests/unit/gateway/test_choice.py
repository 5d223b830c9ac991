"""A choice joins what its attempts send: no text or log-probability is lost or doubled, and those of a token come with its text."""

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.answer import Piece
from services.gateway.attempt import Delta, EndReason, Finished
from services.gateway.choice import Choice
from services.gateway.logprobs import TokenLogprob, TokenLogprobs

MAX_TOKENS = 50


def entry(token: bytes, token_id: int = 0) -> TokenLogprobs:
    return TokenLogprobs(TokenLogprob(token_id, token, -1.0), ())


def delta(text: str, *tokens: str, begin: int = 0) -> Delta:
    entries = tuple(entry(token.encode(), begin + index) for index, token in enumerate(tokens))
    return Delta(tuple(range(begin, begin + len(tokens))), text, 0, entries)


def begun() -> Choice:
    choice = Choice(2, MAX_TOKENS)
    choice.begin_attempt()
    return choice


def tokens_of(piece: Piece) -> list[str]:
    return [logprobs.chosen.token.decode() for logprobs in piece.logprobs]


def test_add_without_logprobs_passes_text_on() -> None:
    choice = begun()
    assert choice.add(Delta((5, 6), "ab", 3)) == Piece(2, "ab")
    assert (choice.token_ids, choice.text_bytes, choice.cached_prompt_tokens, choice.output_tokens) == ([5, 6], 2, 3, 2)


def test_add_logprobs_wait_for_the_text_of_their_token() -> None:
    choice = begun()
    first, held, rest = choice.add(delta("hel", "hel")), choice.add(delta("", "lo", begin=1)), choice.add(delta("lo w", " w", begin=2))
    assert (tokens_of(first), held.is_empty, tokens_of(rest)) == (["hel"], True, ["lo", " w"])
    assert choice.rest().is_empty


def test_add_token_of_which_a_part_is_held_waits_for_all_of_it() -> None:
    choice = begun()
    assert tokens_of(choice.add(delta(" ", " lo"))) == []
    assert tokens_of(choice.add(delta("lox", "x", begin=1))) == [" lo", "x"]


def test_rest_holds_the_tokens_of_a_stop_string_that_is_not_in_the_text() -> None:
    choice = begun()
    assert tokens_of(choice.add(delta("a", "a", "ST", "OP"))) == ["a"]
    assert tokens_of(choice.rest()) == ["ST", "OP"]
    assert choice.rest().is_empty


def test_attempt_that_goes_on_sends_nothing_twice() -> None:
    choice = begun()
    choice.add(delta("ab", "a", "b"))
    choice.begin_attempt()
    assert (choice.num_continued, choice.num_attempts) == (2, 2)
    assert tokens_of(choice.add(delta("c", "c", begin=2))) == ["c"]
    choice.count(Finished(EndReason.STOP, 1, 7))
    assert (choice.output_tokens, choice.cached_prompt_tokens) == (3, 0)


def test_last_token_that_is_made_again_is_told_once() -> None:
    choice = Choice(0, 2)
    choice.begin_attempt()
    choice.add(delta("ab", "a", "b"))
    choice.begin_attempt()
    assert choice.num_continued == 1
    assert choice.add(delta("", "b", begin=1)).is_empty
    choice.count(Finished(EndReason.LENGTH, 1, 0))
    assert (choice.token_ids, choice.output_tokens) == ([0, 1], 2)


def test_prompt_logprobs_of_a_second_attempt_go_on_where_the_first_ended() -> None:
    choice = begun()
    prompt = tuple(entry(b"p", token_id) for token_id in range(4))
    first = choice.add(Delta((), "", 0, (), prompt[:2]))
    choice.begin_attempt()
    again, rest = choice.add(Delta((), "", 0, (), prompt[:1])), choice.add(Delta((), "", 0, (), prompt[1:]))
    assert (first.prompt_logprobs, again.is_empty, rest.prompt_logprobs) == (prompt[:2], True, prompt[2:])


def test_was_taken_is_known_by_a_token_or_a_count() -> None:
    choice = begun()
    assert not choice.was_taken
    choice.count(Finished(EndReason.CANCELLED, 0, 0))
    assert choice.was_taken


@given(st.lists(st.text(min_size=1, max_size=4), max_size=12), st.data())
def test_pieces_any_cutting_keeps_text_and_logprobs_together_and_in_order(tokens: list[str], data: st.DataObject) -> None:
    """However much the text lags behind the tokens."""
    choice, told, text, sent = begun(), list[str](), "", 0
    for index, token in enumerate(tokens):
        made = "".join(tokens[: index + 1])
        until = len(made) if index == len(tokens) - 1 else data.draw(st.integers(sent, len(made)))
        piece = choice.add(delta(made[sent:until], token, begin=index))
        text, sent = text + piece.text, until
        told += tokens_of(piece)
        assert text.startswith("".join(told))
    assert told == tokens
    assert choice.rest().is_empty
