"""Text comes in whole characters, equals the decode of the whole, and a resumed answer goes on where the client was."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from services.engine.text import TextStream
from services.engine.token_bytes import TokenBytes
from services.kit.errors import DataLoss
from tests.harness.tiny_model import tokenizer_document

BYTES = TokenBytes([bytes([byte]) for byte in range(256)])
TEXTS = ["plain", "日本語のテキスト", "😀 emoji 🎉", "👨‍👩‍👧‍👦 family", "e\u0301 combining", "ÄÖÜß", "\ufffd real one", "🇩🇪 flag"]


def stream(token_ids: bytes, stops: list[str] | None = None, delivered: int = 0) -> list[str]:
    text = TextStream(BYTES, stops or [], delivered)
    return [*(text.push(token_id) for token_id in token_ids), text.finish()]


@pytest.mark.parametrize("text", TEXTS)
def test_push_one_byte_per_token_gives_whole_characters_only(text: str) -> None:
    pieces = stream(text.encode())
    assert "".join(pieces) == text
    assert all(len(piece) <= 1 for piece in pieces)


@given(st.binary(max_size=40))
def test_push_any_bytes_equal_the_decode_of_the_whole(content: bytes) -> None:
    """An incomplete last character, which a decode of the whole would show as U+FFFD, is the only difference."""
    whole, streamed = content.decode(errors="replace"), "".join(stream(content))
    assert whole.startswith(streamed)
    assert whole[len(streamed) :] in ("", "\ufffd", "\ufffd\ufffd")
    assert "".join(stream(content + b"x")) == (content + b"x").decode(errors="replace")


@pytest.mark.parametrize(("text", "cut"), [("a😀", 1), ("a😀", 2), ("a😀", 3), ("日本", 1), ("日本", 2)])
def test_finish_character_cut_by_the_token_limit_is_dropped(text: str, cut: int) -> None:
    assert "".join(stream(text.encode()[:-cut])) == text[:-1]


def test_push_incomplete_character_before_a_stop_is_replaced() -> None:
    text = TextStream(BYTES, ["END"])
    pieces = [text.push(byte) for byte in b"a\xe6\x97END tail"]
    assert "".join(pieces) + text.finish() == "a\ufffd"
    assert text.matched_stop == "END"


@pytest.mark.parametrize("stop", ["😀", "本", "👩‍👧"])
def test_push_stop_of_many_bytes_is_never_shown_in_part(stop: str) -> None:
    text = TextStream(BYTES, [stop])
    assert "".join(text.push(byte) for byte in f"日{stop}x".encode()) == "日"
    assert text.matched_stop == stop


@pytest.mark.parametrize("answer", ["日本語 and 😀 text", "abcENxENDrest"])
@pytest.mark.parametrize("stops", [[], ["END"], ["😀 t"]])
def test_resume_after_every_token_joins_to_the_uninterrupted_text(answer: str, stops: list[str]) -> None:
    tokens = answer.encode()
    whole = "".join(stream(tokens, stops))
    for cut in range(len(tokens)):
        first = TextStream(BYTES, stops)
        delivered = "".join(first.push(token) for token in tokens[:cut])
        assert delivered + "".join(stream(tokens, stops, len(delivered.encode()))) == whole


def test_resume_that_had_got_less_text_than_tokens_gets_the_rest() -> None:
    assert "".join(stream(b"abcdef", delivered=2)) == "cdef"


def test_resume_with_a_count_inside_a_character_stays_valid() -> None:
    assert "".join(stream("é!".encode(), delivered=1)) == "!"


@pytest.mark.parametrize(
    ("num_unstoppable", "text", "stop"), [(0, "a", "END"), (1, "a", "END"), (2, "aENDb", "END"), (9, "aENDbENDc", None)]
)
def test_push_looks_for_stops_only_in_tokens_after_the_unstoppable_ones(num_unstoppable: int, text: str, stop: str | None) -> None:
    """A stop string that begins in an unstoppable token is no stop string."""
    found = TextStream(BYTES, ["END"], num_unstoppable=num_unstoppable)
    pieces = [found.push(byte) for byte in b"aENDbENDc"]
    assert ("".join(pieces) + found.finish(), found.matched_stop) == (text, stop)


@pytest.mark.parametrize("cut", range(9))
def test_resume_counts_delivered_tokens_among_the_unstoppable_ones(cut: int) -> None:
    tokens = b"aENDbENDc"
    first = TextStream(BYTES, ["END"], num_unstoppable=4, include_stop=True)
    delivered = "".join(first.push(token) for token in tokens[:cut])
    rest = TextStream(BYTES, ["END"], len(delivered.encode()), num_unstoppable=4, include_stop=True)
    assert delivered + "".join(rest.push(token) for token in tokens) + rest.finish() == "aENDbEND"


@pytest.mark.parametrize(("stops", "text"), [(["END"], "abEND"), (["b", "bEND"], "ab"), (["bEND", "END"], "abEND"), (["x"], "abENDc")])
def test_push_with_include_stop_keeps_the_stop_string_and_nothing_after_it(stops: list[str], text: str) -> None:
    for size in (1, 2, 3, 6):
        found = TextStream(TokenBytes([b"abENDc"[at : at + size] for at in range(0, 6, size)]), stops, include_stop=True)
        assert "".join(found.push(token) for token in range(-(-6 // size))) + found.finish() == text


def test_finish_adds_the_text_of_the_last_token_after_what_was_held_back() -> None:
    found = TextStream(BYTES, ["END"])
    assert [found.push(byte) for byte in b"xEN"] == ["x", "", ""]
    assert found.finish(ord("!")) == "EN!"


def test_token_bytes_of_unknown_and_special_ids_are_empty() -> None:
    document = b"""{"decoder": {"type": "ByteLevel"}, "model": {"vocab": {"\xc4\xa0a": 2, "\xc4\x8a": 3}},
        "added_tokens": [{"id": 0, "content": "<|end|>", "special": true}, {"id": 4, "content": "<tool>", "special": false}]}"""
    vocabulary = TokenBytes.from_json(document)
    assert [vocabulary[index] for index in range(6)] == [b"", b"", b" a", b"\n", b"<tool>", b""]


def test_token_bytes_of_a_byte_fallback_vocabulary() -> None:
    document = """{"decoder": {"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}]},
        "model": {"vocab": {"<0xE6>": 0, "<0x97>": 1, "<0xA5>": 2, "\u2581day": 3}}}"""
    text = TextStream(TokenBytes.from_json(document.encode()))
    assert [text.push(token) for token in range(4)] == ["", "", "日", " day"]


@pytest.mark.parametrize("document", [b"", b"[]", b'{"decoder": null, "model": {"vocab": {}}}', b'{"decoder": {"type": "WordPiece"}}'])
def test_token_bytes_of_an_unusable_tokenizer_is_data_loss(document: bytes) -> None:
    with pytest.raises(DataLoss):
        TokenBytes.from_json(document)


def test_token_bytes_agree_with_the_tokenizer_library() -> None:
    document = json.dumps(tokenizer_document())
    vocabulary, library = TokenBytes.from_json(document.encode()), Tokenizer.from_str(document)
    for first, second in itertools.product(range(2, len(vocabulary)), range(2, len(vocabulary), 37)):
        pair = [first, second]
        assert b"".join(vocabulary[token] for token in pair).decode(errors="replace") == library.decode(pair)
