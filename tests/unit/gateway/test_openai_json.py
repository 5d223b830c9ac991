"""Answers have exactly OpenAI's published shapes."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway import openai_json
from services.gateway.answer import Accepted, Ending, Usage
from services.gateway.request import GenerationRequest, SamplingParams
from services.kit import errors
from services.kit.status import openai_error

SCHEMAS = json.loads((Path(__file__).parents[2] / "data" / "openai" / "chat_schemas.json").read_text())
USAGE = Usage(prompt_tokens=7, cached_prompt_tokens=2, completion_tokens=3)


def check(name: str, value: object) -> None:
    jsonschema.Draft202012Validator({**SCHEMAS, "$ref": f"#/$defs/{name}"}).validate(value)


def accepted(*, include_usage: bool = False) -> Accepted:
    request = GenerationRequest("tiny", (), SamplingParams(), stream=True, include_usage=include_usage)
    return Accepted("chatcmpl-1", "tiny", "abc", 1_700_000_000, request)


def read(event: bytes) -> Any:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event[6:])


@pytest.mark.parametrize("include_usage", [False, True])
def test_chunks_obey_the_published_schema(include_usage: bool) -> None:
    chunks = openai_json.ChunkWriter(accepted(include_usage=include_usage))
    role, text, finish = read(chunks.role()), read(chunks.text("hi")), read(chunks.finish("length"))
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
    document = json.loads(openai_json.completion(accepted(), "", Ending("stop", USAGE)))
    check("CreateChatCompletionResponse", document)
    assert document["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert (document["choices"][0]["index"], document["choices"][0]["logprobs"]) == (0, None)
    assert type(document["created"]) is int


@given(st.text())
def test_text_chunk_carries_any_text_on_one_line(text: str) -> None:
    event = openai_json.ChunkWriter(accepted()).text(text)
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
