"""Text completions: whole events, one line each, whatever the text; the echoed prompt once per choice."""

import json
from typing import Any

from services.gateway.answer import Accepted, Echo, Ending, Piece, Usage
from services.gateway.completion_json import CompletionWriter, completion_document
from services.gateway.logprobs import TokenLogprob, TokenLogprobs
from services.gateway.request import GenerationRequest, SamplingParams

USAGE = Usage(prompt_tokens=4, cached_prompt_tokens=2, completion_tokens=3)


def accepted(*, echo: Echo | None = None, **fields: Any) -> Accepted:
    request = GenerationRequest("m", (), SamplingParams(), prompt="p", echo=echo is not None, **fields)
    return Accepted("cmpl-1", "m", "v1", 5, request, echo)


def entry(token: bytes, logprob: float = -1.0) -> TokenLogprobs:
    return TokenLogprobs(TokenLogprob(3, token, logprob), ())


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
    document = json.loads(completion_document(accepted(num_logprobs=1, echo=echo), [piece], Ending(("stop",), USAGE)))
    (chunk,) = parsed(CompletionWriter(accepted(num_logprobs=1, echo=echo)).piece(piece))
    whole, streamed = document["choices"][0], chunk["choices"][0]
    assert (whole["text"], whole["logprobs"]) == (streamed["text"], streamed["logprobs"])
    assert whole["logprobs"]["tokens"] == ["p", "q", "x", "y"]
    assert whole["logprobs"]["token_logprobs"] == [None, -1.0, -1.0, -9999.0]
    assert whole["logprobs"]["top_logprobs"] == [None, {"q": -1.0}, {"x": -1.0}, {"y": -9999.0}]
    assert (whole["finish_reason"], document["usage"]["completion_tokens"]) == ("stop", 3)
