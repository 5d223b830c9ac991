"""Answers have exactly OpenAI's published shapes."""

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway import openai_json
from services.gateway.answer import Accepted, Ending, Piece, Usage
from services.gateway.logprobs import TokenLogprob, TokenLogprobs
from services.gateway.request import GenerationRequest, SamplingParams
from services.kit import errors
from services.kit.status import openai_error

SCHEMAS = json.loads((Path(__file__).parents[2] / "data" / "openai" / "chat_schemas.json").read_text())
USAGE = Usage(prompt_tokens=7, cached_prompt_tokens=2, completion_tokens=3)


def check(name: str, value: object) -> None:
    jsonschema.Draft202012Validator({**SCHEMAS, "$ref": f"#/$defs/{name}"}).validate(value)


def accepted(*, include_usage: bool = False, num_choices: int = 1) -> Accepted:
    request = GenerationRequest("tiny", (), SamplingParams(), stream=True, include_usage=include_usage, num_choices=num_choices)
    return Accepted("chatcmpl-1", "tiny", "abc", 1_700_000_000, request)


def read(event: bytes) -> Any:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event[6:])


def whole(pieces: list[Piece], finish_reasons: tuple[str, ...], num_logprobs: int | None = None) -> Any:
    request = GenerationRequest("tiny", (), SamplingParams(), num_choices=len(finish_reasons), num_logprobs=num_logprobs)
    document = openai_json.DocumentWriter(Accepted("chatcmpl-1", "tiny", "abc", 1_700_000_000, request))
    for piece in pieces:
        document.add(piece)
    return json.loads(document.finish(Ending(finish_reasons, USAGE)))


def read_all(events: bytes) -> list[Any]:
    return [read(event + b"\n\n") for event in events.split(b"\n\n") if event]


@pytest.mark.parametrize("include_usage", [False, True])
def test_chunks_obey_the_published_schema(include_usage: bool) -> None:
    chunks = openai_json.ChunkWriter(accepted(include_usage=include_usage))
    role, text, finish = read(chunks.roles()), read(chunks.piece(Piece(0, "hi"))), read(chunks.finish(("length",)))
    for chunk in (role, text, finish):
        check("CreateChatCompletionStreamResponse", chunk)
        assert (chunk["id"], chunk["object"], chunk["created"], chunk["model"]) == (
            "chatcmpl-1",
            "chat.completion.chunk",
            1_700_000_000,
            "tiny",
        )
        assert chunk["system_fingerprint"] == "fp_abc"
        assert ("usage" in chunk) == include_usage
        assert chunk.get("usage") is None
        assert set(chunk["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"}
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert text["choices"][0]["delta"] == {"content": "hi"}
    assert (finish["choices"][0]["delta"], finish["choices"][0]["finish_reason"]) == ({}, "length")
    assert text["choices"][0]["finish_reason"] is None


def test_usage_chunk_has_no_choices_and_all_counts() -> None:
    chunk = read(openai_json.ChunkWriter(accepted(include_usage=True)).usage(USAGE))
    check("CreateChatCompletionStreamResponse", chunk)
    assert chunk["choices"] == []
    assert (chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"], chunk["usage"]["total_tokens"]) == (7, 3, 10)
    assert chunk["usage"]["prompt_tokens_details"]["cached_tokens"] == 2


def test_completion_obeys_the_published_schema() -> None:
    document = whole([Piece(0, "")], ("stop",))
    check("CreateChatCompletionResponse", document)
    assert document["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert (document["choices"][0]["index"], document["choices"][0]["logprobs"]) == (0, None)
    assert type(document["created"]) is int


def test_choices_have_their_own_chunks_and_places() -> None:
    chunks = openai_json.ChunkWriter(accepted(num_choices=3))
    roles, finish = read_all(chunks.roles()), read_all(chunks.finish(("stop", "length", "stop")))
    assert [chunk["choices"][0]["index"] for chunk in roles] == [chunk["choices"][0]["index"] for chunk in finish] == [0, 1, 2]
    assert {chunk["choices"][0]["delta"]["role"] for chunk in roles} == {"assistant"}
    assert [chunk["choices"][0]["finish_reason"] for chunk in finish] == ["stop", "length", "stop"]
    assert read(chunks.piece(Piece(2, "x")))["choices"][0]["index"] == 2
    document = whole([Piece(1, "b"), Piece(0, "a"), Piece(1, "c")], ("stop", "length"))
    check("CreateChatCompletionResponse", document)
    found = [(choice["index"], choice["message"]["content"], choice["finish_reason"]) for choice in document["choices"]]
    assert found == [(0, "a", "stop"), (1, "bc", "length")]


def test_logprobs_obey_the_published_schema_in_chunks_and_documents() -> None:
    likely, odd = TokenLogprob(5, "\u00e9\u2028".encode(), -0.25), TokenLogprob(6, b"\xf0\x9f", -math.inf)
    piece = Piece(0, "\u00e9", (TokenLogprobs(likely, (likely, odd)), TokenLogprobs(odd, ())))
    event = openai_json.ChunkWriter(accepted()).piece(piece)
    chunk, document = (
        read(event),
        whole([Piece(0, "\u00e9", piece.logprobs[:1]), Piece(0, "", piece.logprobs[1:])], ("stop",), num_logprobs=2),
    )
    check("CreateChatCompletionStreamResponse", chunk)
    check("CreateChatCompletionResponse", document)
    assert len(event.decode().rstrip("\n").splitlines()) == 1
    assert chunk["choices"][0]["logprobs"] == document["choices"][0]["logprobs"]
    first, second = chunk["choices"][0]["logprobs"]["content"]
    assert (first["token"], first["logprob"], first["bytes"]) == ("\u00e9\u2028", -0.25, [195, 169, 226, 128, 168])
    assert [token["token"] for token in first["top_logprobs"]] == ["\u00e9\u2028", "\ufffd"]
    assert (second["logprob"], second["bytes"], second["top_logprobs"]) == (-9999.0, [240, 159], [])
    assert chunk["choices"][0]["logprobs"]["refusal"] is None
    assert whole([], ("stop",), num_logprobs=0)["choices"][0]["logprobs"] == {"content": [], "refusal": None}


@given(st.text())
def test_text_chunk_carries_any_text_on_one_line(text: str) -> None:
    event = openai_json.ChunkWriter(accepted()).piece(Piece(0, text))
    assert len(event.decode().rstrip("\n").splitlines()) == 1
    assert read(event)["choices"][0]["delta"]["content"] == text


@pytest.mark.parametrize(
    "error",
    [
        errors.FieldError("messages[0].role", "wrong"),
        errors.Unauthenticated("who?"),
        errors.NotFound("none", reason="MODEL_NOT_FOUND", metadata={"param": "model"}),
        errors.ResourceExhausted("full", reason="QUEUE_FULL"),
        errors.Internal("hidden"),
    ],
)
def test_error_event_obeys_the_published_schema(error: errors.InferwayError) -> None:
    event = read(openai_json.error_event(openai_error(error)))
    check("ErrorResponse", event)
    assert set(event["error"]) == {"message", "type", "param", "code"}
    assert event["error"]["param"] == error.metadata.get("param")
