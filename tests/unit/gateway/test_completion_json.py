"""Text completions: whole events, one line each, whatever the text; the echoed prompt once per choice."""

import codecs
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.answer import Accepted, Echo, Ending, Piece, Usage
from services.gateway.completion_json import CompletionDocument, CompletionWriter
from services.gateway.logprobs import TokenLogprob, TokenLogprobs
from services.gateway.request import GenerationRequest, SamplingParams

USAGE = Usage(prompt_tokens=4, cached_prompt_tokens=2, completion_tokens=3)
TOKENS = st.binary(max_size=3) | st.sampled_from([b" a", "\u2028".encode(), b'"', "\u20ac".encode(), b"\xe2", b"bytes:\\xe2", b"\x00"])
ENTRIES = st.builds(TokenLogprob, st.integers(0, 9), TOKENS, st.floats(max_value=0, allow_nan=False))
LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
POSITIONS = st.lists(st.builds(TokenLogprobs, ENTRIES, st.lists(ENTRIES, max_size=3).map(tuple)), max_size=4).map(tuple)


def accepted(*, echo: Echo | None = None, **fields: Any) -> Accepted:
    request = GenerationRequest("m", (), SamplingParams(), prompt="p", echo=echo is not None, **fields)
    return Accepted("cmpl-1", "m", "v1", 5, request, echo)


def entry(token: bytes, logprob: float = -1.0) -> TokenLogprobs:
    return TokenLogprobs(TokenLogprob(3, token, logprob), ())


def document_of(about: Accepted, pieces: Sequence[Piece], reasons: tuple[str, ...]) -> bytes:
    document = CompletionDocument(about)
    for piece in pieces:
        document.add(piece)
    return document.finish(Ending(reasons, USAGE))


def plain_logprobs(first: bytes | None, positions: Sequence[TokenLogprobs]) -> dict[str, Any]:
    """What the arrays hold, as plain objects."""
    tokens = ([] if first is None else [first]) + [position.chosen.token for position in positions]
    ahead = [None] * (len(tokens) - len(positions))
    tops = [{name(entry.token): bounded(entry.logprob) for entry in (*position.top, position.chosen)} for position in positions]
    written = codecs.getincrementaldecoder("utf-8")(errors="replace")
    lengths = [len(written.decode(token)) for token in tokens]
    return {
        "tokens": [*map(name, tokens)],
        "token_logprobs": [*ahead, *(bounded(position.chosen.logprob) for position in positions)],
        "top_logprobs": [*ahead, *tops],
        "text_offset": [sum(lengths[:index]) for index in range(len(tokens))],
    }


def name(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def bounded(logprob: float) -> float:
    return max(logprob, -9999.0)


def parsed(events: bytes) -> list[Any]:
    lines = events.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(len(line.splitlines()) == 1 for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_chunk_is_one_line_whatever_the_text() -> None:
    text = 'a"\\\n\r\u2028\u2029\x85\x00é😀'
    (chunk,) = parsed(CompletionWriter(accepted()).piece(Piece(0, text)))
    assert chunk["choices"] == [{"index": 0, "text": text, "logprobs": None, "finish_reason": None}]
    assert (chunk["id"], chunk["object"], chunk["created"], chunk["model"]) == ("cmpl-1", "text_completion", 5, "m")
    assert "usage" not in chunk


def test_usage_is_null_until_its_own_chunk() -> None:
    writer = CompletionWriter(accepted(include_usage=True))
    (text,), (finish,), (usage,) = parsed(writer.piece(Piece(0, "x"))), parsed(writer.finish(["length"])), parsed(writer.usage(USAGE))
    assert (text["usage"], finish["usage"], usage["choices"]) == (None, None, [])
    assert (usage["usage"]["total_tokens"], usage["usage"]["prompt_tokens_details"]["cached_tokens"]) == (7, 2)
    assert finish["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}]


def test_echo_begins_every_choice_once_even_one_that_says_nothing() -> None:
    writer = CompletionWriter(accepted(echo=Echo("p:", b"p"), num_choices=2))
    chunks = parsed(writer.piece(Piece(1, "x")) + writer.piece(Piece(1, "y")) + writer.finish(["stop", "stop"]))
    assert [(chunk["choices"][0]["index"], chunk["choices"][0]["text"]) for chunk in chunks] == [(1, "p:x"), (1, "y"), (0, "p:"), (1, "")]


def test_offsets_go_on_over_chunks_and_wait_for_whole_characters() -> None:
    writer = CompletionWriter(accepted(num_logprobs=0))
    euro = "€".encode()
    pieces = [Piece(0, "a", (entry(b"a"), entry(euro[:1]))), Piece(0, "€b", (entry(euro[1:]), entry(b"b")))]
    chunks = [chunk["choices"][0]["logprobs"] for piece in pieces for chunk in parsed(writer.piece(piece))]
    assert [chunk["text_offset"] for chunk in chunks] == [[0, 1], [1, 2]]
    assert [chunk["tokens"] for chunk in chunks] == [["a", "bytes:\\xe2"], ["bytes:\\x82\\xac", "b"]]


def test_document_and_stream_tell_the_same() -> None:
    echo = Echo("pq", b"p")
    piece = Piece(0, "xy", (entry(b"x"), entry(b"y", float("-inf"))), (entry(b"q"),))
    document = json.loads(document_of(accepted(num_logprobs=1, echo=echo), [piece], ("stop",)))
    (chunk,) = parsed(CompletionWriter(accepted(num_logprobs=1, echo=echo)).piece(piece))
    whole, streamed = document["choices"][0], chunk["choices"][0]
    assert (whole["text"], whole["logprobs"]) == (streamed["text"], streamed["logprobs"])
    assert whole["logprobs"]["tokens"] == ["p", "q", "x", "y"]
    assert whole["logprobs"]["token_logprobs"] == [None, -1.0, -1.0, -9999.0]
    assert whole["logprobs"]["top_logprobs"] == [None, {"q": -1.0}, {"x": -1.0}, {"y": -9999.0}]
    assert (whole["finish_reason"], document["usage"]["completion_tokens"]) == ("stop", 3)


@given(st.lists(POSITIONS, min_size=1, max_size=4), TOKENS)
def test_document_written_piece_by_piece_is_byte_for_byte_the_plain_one(pieces: list[tuple[TokenLogprobs, ...]], first: bytes) -> None:
    about = accepted(num_logprobs=3, echo=Echo("p\u2028q", first), num_choices=2)
    asked, *answered = pieces
    added = [Piece(1, "", (), asked), *(Piece(1, "x", positions) for positions in answered), Piece(0, "y", (), asked)]
    found = document_of(about, added, ("stop", "length"))
    texts = ["p\u2028qy", "p\u2028q" + "x" * len(answered)]
    positions = [asked, [position for piece in pieces for position in piece]]
    choices = [
        {"index": index, "text": texts[index], "logprobs": plain_logprobs(first, positions[index]), "finish_reason": reason}
        for index, reason in enumerate(("stop", "length"))
    ]
    begun = {"id": "cmpl-1", "object": "text_completion", "created": 5, "model": "m", "system_fingerprint": "fp_v1"}
    plain = {**begun, "choices": choices, "usage": json.loads(found)["usage"]}
    assert found.decode() == json.dumps(plain, ensure_ascii=False, separators=(",", ":")).translate(LINE_BREAKS)


def test_last_chunk_is_one_line_too_when_it_holds_the_echo() -> None:
    (chunk,) = parsed(CompletionWriter(accepted(echo=Echo("p\u2028", b"p"))).finish(["stop"]))
    assert (chunk["choices"][0]["text"], chunk["choices"][0]["finish_reason"]) == ("p\u2028", "stop")


def test_document_of_a_choice_that_says_nothing_has_empty_arrays_only_when_asked() -> None:
    silent = [json.loads(document_of(accepted(num_logprobs=number), [], ("stop",)))["choices"] for number in (None, 0)]
    empty: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    assert silent == [[{"index": 0, "text": "", "logprobs": logprobs, "finish_reason": "stop"}] for logprobs in (None, empty)]
