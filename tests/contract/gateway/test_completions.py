"""POST /v1/completions as Envoy calls it: text or token ids in, one document or one event stream out, in OpenAI's shapes."""

import json
import math
from typing import Any

import grpc
import pytest
from google.api.httpbody_pb2 import HttpBody
from openai.types import Completion

from inferway.edge.v1 import openai_pb2
from inferway.engine.v1 import engine_pb2
from tests.contract.gateway.conftest import Mesh
from tests.harness.gateway_service import SECRET, WAIT_S, RunningGateway, collect, credentials, events, refusal
from tests.harness.session_engine import PlayedAttempt
from tests.harness.tiny_model import NAME, byte_token

HI = [byte_token(ord("H")), byte_token(ord("i"))]


def complete(gateway: RunningGateway, **fields: Any) -> Any:
    """The call of POST /v1/completions."""
    data = json.dumps({"model": NAME, "prompt": HI, **fields}).encode()
    request = openai_pb2.CreateCompletionRequest(body=HttpBody(content_type="application/json", data=data))
    return gateway.openai.CreateCompletion(request, metadata=credentials(SECRET), timeout=WAIT_S)


async def document_of(call: Any) -> dict[str, Any]:
    """The JSON document, which the official client's own type accepts; only the API's null before an echoed prompt it does not know."""
    document: dict[str, Any] = json.loads(await collect(call))
    choices = [{**choice, "logprobs": choice["logprobs"] and _without_null(choice["logprobs"])} for choice in document["choices"]]
    Completion.model_validate({**document, "choices": choices}, strict=True)
    return document


def _without_null(logprobs: dict[str, Any]) -> dict[str, Any]:
    return {name: [value for value in values if value is not None] for name, values in logprobs.items()}


def position(token: bytes, logprob: float, *others: tuple[bytes, float]) -> engine_pb2.TokenLogprobs:
    """One position whose chosen token is the likeliest one."""
    found = [engine_pb2.TokenLogprob(token_id=7, token=text, logprob=value) for text, value in ((token, logprob), *others)]
    return engine_pb2.TokenLogprobs(chosen=found[0], top=found)


def say(attempt: PlayedAttempt, delta: engine_pb2.AttemptDelta) -> None:
    attempt._say(engine_pb2.AttemptEvent(attempt_id=attempt.start.attempt_id, delta=delta))


def play_logprobs(attempt: PlayedAttempt) -> None:
    """Says "a" and half of "é", then its other half, each with its log-probabilities; before them those of the prompt, if wanted."""
    if attempt.start.HasField("num_prompt_logprobs"):
        say(attempt, engine_pb2.AttemptDelta(prompt_logprobs=[position(b"i", -0.5, (b"o", -1.0))]))
    first, second = "é".encode()[:1], "é".encode()[1:]
    logprobs = [position(b"a", -0.25, (b"b", -2.0)), position(first, -0.125)]
    say(attempt, engine_pb2.AttemptDelta(token_ids=[99, 100], text="a", logprobs=logprobs))
    say(attempt, engine_pb2.AttemptDelta(token_ids=[101], text="é", logprobs=[position(second, -math.inf)]))
    attempt.finish(output_tokens=3)


async def test_completion_of_token_ids_is_one_document(gateway: RunningGateway, mesh: Mesh) -> None:
    document = await document_of(complete(gateway))
    assert document["object"] == "text_completion"
    assert document["id"].startswith("cmpl-")
    assert document["choices"] == [{"index": 0, "text": "one two three", "logprobs": None, "finish_reason": "stop"}]
    assert (document["usage"]["prompt_tokens"], document["usage"]["completion_tokens"]) == (2, 3)
    start = (await mesh.engine.next_attempt()).start
    assert (list(start.prompt_token_ids), start.max_output_tokens) == (HI, 16)
    (record,) = await gateway.records()
    assert (record.completion_id, record.prompt_tokens, record.completion_tokens) == (document["id"], 2, 3)


async def test_completion_of_text_is_tokenised_as_it_stands(gateway: RunningGateway, mesh: Mesh) -> None:
    assert (await document_of(complete(gateway, prompt="Hi")))["usage"]["prompt_tokens"] == 2
    assert list((await mesh.engine.next_attempt()).start.prompt_token_ids) == HI
    assert (await document_of(complete(gateway, prompt=["<|end|>"])))["usage"]["prompt_tokens"] == 7, "no text becomes a control token"


async def test_completion_engine_gets_exactly_what_was_asked(gateway: RunningGateway, mesh: Mesh) -> None:
    fields = {"temperature": 0, "top_p": 0.5, "seed": 3, "top_k": 4, "min_p": 0.25, "repetition_penalty": 1.5, "frequency_penalty": 1}
    ends = {"stop": ["x"], "max_tokens": 9, "min_tokens": 2, "stop_token_ids": [5], "ignore_eos": True, "include_stop_str_in_output": True}
    await document_of(complete(gateway, presence_penalty=-1, logit_bias={"7": 5}, logprobs=2, echo=True, **fields, **ends))
    start = (await mesh.engine.next_attempt()).start
    sampling = start.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed, sampling.top_k, sampling.min_p) == (0, 0.5, 3, 4, 0.25)
    assert (sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty) == (1.5, 1, -1)
    assert [(bias.token_id, bias.bias) for bias in sampling.logit_bias] == [(7, 5)]
    assert (list(start.stop), list(start.stop_token_ids), start.max_output_tokens, start.min_output_tokens) == (["x"], [5], 9, 2)
    assert (start.ignore_eos, start.include_stop, start.num_logprobs, start.num_prompt_logprobs) == (True, True, 2, 2)


async def test_completion_without_echo_asks_for_no_logprobs_of_the_prompt(gateway: RunningGateway, mesh: Mesh) -> None:
    await collect(complete(gateway, logprobs=0))
    await collect(complete(gateway, echo=True))
    first, second = (await mesh.engine.next_attempt()).start, (await mesh.engine.next_attempt()).start
    assert (first.HasField("num_logprobs"), first.HasField("num_prompt_logprobs")) == (True, False)
    assert (second.HasField("num_logprobs"), second.HasField("num_prompt_logprobs")) == (False, False)


@pytest.mark.parametrize("usage", [False, True])
async def test_completion_stream_has_text_then_finish_then_usage(gateway: RunningGateway, usage: bool) -> None:
    found = events(await collect(complete(gateway, stream=True, stream_options={"include_usage": usage})))
    assert found.pop() == "[DONE]"
    if usage:
        last = found.pop()
        assert (last["choices"], last["usage"]["total_tokens"]) == ([], 5)
    assert {("usage" in chunk) and chunk["usage"] is None for chunk in found} == {usage}
    for chunk in found:
        assert chunk["object"] == "text_completion"
    assert "".join(chunk["choices"][0]["text"] for chunk in found) == "one two three"
    assert [chunk["choices"][0]["finish_reason"] for chunk in found] == [None] * (len(found) - 1) + ["stop"]
    (record,) = await gateway.records()
    assert record.surface == "rest-stream"


async def test_completion_choices_have_text_and_end_of_their_own(gateway: RunningGateway) -> None:
    document = await document_of(complete(gateway, n=3, echo=True))
    assert [(choice["index"], choice["text"]) for choice in document["choices"]] == [(index, "Hione two three") for index in range(3)]
    assert (document["usage"]["prompt_tokens"], document["usage"]["completion_tokens"]) == (2, 9)
    found = events(await collect(complete(gateway, n=2, echo=True, stream=True)))
    texts, reasons = {0: "", 1: ""}, {}
    for chunk in found[:-1]:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        reasons[choice["index"]] = choice["finish_reason"]
    assert (texts, reasons) == ({0: "Hione two three", 1: "Hione two three"}, {0: "stop", 1: "stop"})


async def test_completion_echo_of_an_empty_answer_is_the_prompt(mesh: Mesh) -> None:
    await mesh.add_engine(PlayedAttempt.finish)
    gateway = await mesh.start_gateway()
    assert (await document_of(complete(gateway, echo=True)))["choices"][0]["text"] == "Hi"
    found = events(await collect(complete(gateway, echo=True, stream=True)))
    assert [(chunk["choices"][0]["text"], chunk["choices"][0]["finish_reason"]) for chunk in found[:-1]] == [("Hi", "stop")]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_completion_logprobs_are_parallel_arrays(mesh: Mesh, echo: bool, stream: bool) -> None:
    await mesh.add_engine(play_logprobs)
    gateway = await mesh.start_gateway()
    asked = complete(gateway, logprobs=1, echo=echo, stream=stream)
    if stream:
        pieces = [chunk["choices"][0] for chunk in events(await collect(asked))[:-1]]
        text = "".join(piece["text"] for piece in pieces)
        found = {name: [value for piece in pieces for value in piece["logprobs"][name]] for name in pieces[0]["logprobs"]}
    else:
        choice = (await document_of(asked))["choices"][0]
        text, found = choice["text"], choice["logprobs"]
    tokens = ["a", "bytes:\\xc3", "bytes:\\xa9"]
    prompt: list[Any] = ["H", "i"] if echo else []
    assert text == "".join(prompt) + "aé"
    assert found["tokens"] == prompt + tokens
    assert found["token_logprobs"] == ([None, -0.5] if echo else []) + [-0.25, -0.125, -9999.0]
    assert found["top_logprobs"][-3:] == [{"a": -0.25, "b": -2.0}, {tokens[1]: -0.125}, {tokens[2]: -9999.0}]
    assert found["top_logprobs"][:-3] == ([None, {"i": -0.5, "o": -1.0}] if echo else [])
    before = len(prompt)
    assert found["text_offset"] == [*range(before), before, before + 1, before + 1]


async def test_completion_stream_that_fails_ends_with_an_error_event(mesh: Mesh) -> None:
    def play(attempt: PlayedAttempt) -> None:
        attempt.delta("so far")
        attempt.fail("STEP_FAILED", retryable=False)

    await mesh.add_engine(play)
    gateway = await mesh.start_gateway()
    data = b""
    with pytest.raises(grpc.aio.AioRpcError, match="request failed"):
        async for body in complete(gateway, stream=True):
            data += body.data
    *chunks, error = events(data)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "so far"
    assert error["error"]["code"] == "step_failed"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": [10_000]}, "prompt", "token_out_of_range"),
        ({"logit_bias": {"10000": 1}}, "logit_bias", "token_out_of_range"),
        ({"stop_token_ids": [10_000]}, "stop_token_ids", "token_out_of_range"),
        ({"prompt": ["a", "b"]}, "prompt", "unsupported_parameter"),
        ({"max_tokens": 512}, "max_tokens", "context_length_exceeded"),
        ({"prompt": "x" * 600}, "prompt", "context_length_exceeded"),
        ({"suffix": "end"}, "suffix", "unsupported_parameter"),
    ],
    ids=str,
)
async def test_completion_refusal_names_the_field_and_bills_nothing(
    gateway: RunningGateway, fields: dict[str, Any], param: str, code: str
) -> None:
    _, error, trailers = await refusal(complete(gateway, **fields))
    assert (error["param"], error["code"], trailers["x-http-status"]) == (param, code, "400")
    assert await gateway.records() == []
