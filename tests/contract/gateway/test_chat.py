"""POST /v1/chat/completions and GET /v1/models as Envoy calls them: one document or one event stream, in OpenAI's shapes."""

import json
from pathlib import Path
from typing import Any

import grpc
import jsonschema
import pytest

from inferway.edge.v1 import openai_pb2
from inferway.engine.v1 import engine_pb2
from inferway.metering.v1 import records_pb2
from tests.contract.gateway.conftest import Mesh
from tests.harness.gateway_service import LIMITED_SECRET, SECRET, RunningGateway, collect, credentials, events, request
from tests.harness.session_engine import PlayedAttempt
from tests.harness.tiny_model import NAME

SCHEMAS = json.loads((Path(__file__).parents[2] / "data" / "openai" / "chat_schemas.json").read_text())


def check(name: str, value: object) -> None:
    jsonschema.Draft202012Validator({**SCHEMAS, "$ref": f"#/$defs/{name}"}).validate(value)


def usage_of(record: records_pb2.RequestRecord) -> tuple[int, int, int]:
    return record.prompt_tokens, record.completion_tokens, record.cached_prompt_tokens


def usage_in(document: dict[str, Any]) -> tuple[int, int, int]:
    usage = document["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


async def headers(call: Any) -> dict[str, str]:
    return {key: value for key, value in await call.initial_metadata() if isinstance(value, str)}


@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}], ids=str)
async def test_chat_without_stream_is_one_json_document(gateway: RunningGateway, stream: dict[str, Any]) -> None:
    call = gateway.chat(request(**stream), metadata=(("x-request-id", "req-7"),))
    bodies = [body async for body in call]
    assert [body.content_type for body in bodies] == ["application/json"]
    document = json.loads(bodies[0].data)
    check("CreateChatCompletionResponse", document)
    assert document["choices"][0]["message"]["content"] == "one two three"
    assert document["choices"][0]["finish_reason"] == "stop"
    (record,) = await gateway.records()
    assert usage_in(document) == usage_of(record) == (5, 3, 0)
    assert (record.completion_id, record.request_id, record.surface) == (document["id"], "req-7", "rest")
    assert (await headers(call))["x-request-id"] == "req-7"


@pytest.mark.parametrize(
    "options", [{}, {"stream_options": {"include_usage": False}}, {"stream_options": {"include_usage": True}}], ids=str
)
async def test_chat_stream_has_every_event_in_its_place(gateway: RunningGateway, options: dict[str, Any]) -> None:
    call = gateway.chat(request(stream=True, **options))
    bodies = [body async for body in call]
    assert {body.content_type for body in bodies} == {"text/event-stream"}
    found = events(b"".join(body.data for body in bodies))
    assert found.count("[DONE]") == 1
    assert found.pop() == "[DONE]"
    for chunk in found:
        check("CreateChatCompletionStreamResponse", chunk)
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["system_fingerprint"]) for chunk in found}) == 1
    (record,) = await gateway.records()
    if "True" in str(options):
        last = found.pop()
        assert last["choices"] == []
        assert usage_in(last) == usage_of(record)
        assert all(chunk["usage"] is None for chunk in found)
    else:
        assert all("usage" not in chunk for chunk in found)
    choices = [choice for chunk in found for choice in chunk["choices"]]
    assert choices[0]["delta"]["role"] == "assistant"
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "one two three"
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert {choice["index"] for choice in choices} == {0}
    assert record.surface == "rest-stream"
    assert (await headers(call))["cache-control"] == "no-cache"


async def test_chat_same_request_has_the_same_usage_whichever_way_it_is_asked(mesh: Mesh) -> None:
    def play(attempt: PlayedAttempt) -> None:
        attempt.delta("a", num_tokens=2, cached_prompt_tokens=4)
        attempt.delta("b")
        attempt.finish(output_tokens=2)

    await mesh.add_engine(play)
    gateway = await mesh.start_gateway()
    whole = usage_in(json.loads(await collect(gateway.chat(request()))))
    streamed = events(await collect(gateway.chat(request(stream=True, stream_options={"include_usage": True}))))
    await collect(gateway.chat(request(stream=True)))
    assert whole == usage_in(streamed[-2]) == (5, 2, 4)
    assert {usage_of(record) for record in await gateway.records()} == {whole}


async def test_chat_length_is_told_and_asked_of_the_engine(mesh: Mesh) -> None:
    def play(attempt: PlayedAttempt) -> None:
        attempt.delta("abc", num_tokens=attempt.start.max_output_tokens)
        attempt.finish(engine_pb2.FINISH_REASON_LENGTH)

    await mesh.add_engine(play)
    gateway = await mesh.start_gateway()
    document = json.loads(await collect(gateway.chat(request(max_tokens=50, max_completion_tokens=5))))
    assert (document["choices"][0]["finish_reason"], document["usage"]["completion_tokens"]) == ("length", 5)


async def test_chat_engine_gets_exactly_what_was_asked(gateway: RunningGateway, mesh: Mesh) -> None:
    body = request(temperature=0, top_p=0.5, seed=-3, stop=["x", "y"], max_tokens=7)
    await collect(gateway.chat(body, metadata=(("x-request-id", "req-9"), ("x-tenant", "other"), ("x-priority", "9"))))
    start = (await mesh.engine.next_attempt()).start
    assert (start.sampling.temperature, start.sampling.top_p, start.sampling.top_k, start.sampling.seed) == (0.0, 0.5, 0, -3)
    assert (list(start.stop), start.max_output_tokens, start.model, start.tenant_id, start.priority) == (["x", "y"], 7, NAME, "acme", 0)
    assert (start.request_id, start.cache_salt) == ("req-9", b"acme")
    (record,) = await gateway.records()
    assert start.charge_id == record.charge_id
    (want,) = mesh.router.wants
    assert (want.want_id, want.prompt_tokens, want.max_output_tokens) == (start.attempt_id, 5, 7)
    assert want.model_version == record.model_version != ""


async def test_chat_string_and_text_part_cost_the_same(gateway: RunningGateway, mesh: Mesh) -> None:
    await collect(gateway.chat(request()))
    await collect(gateway.chat(request(messages=[{"role": "user", "content": [{"type": "text", "text": "hello"}]}])))
    first, second = await mesh.engine.next_attempt(), await mesh.engine.next_attempt()
    assert list(first.start.prompt_token_ids) == list(second.start.prompt_token_ids)


async def test_chat_request_ids_that_are_not_sane_are_replaced_and_equal_ones_are_no_trouble(gateway: RunningGateway) -> None:
    ids = ["same", "same", "x" * 129, "a b", "a/b"]
    documents = [json.loads(await collect(gateway.chat(request(), metadata=(("x-request-id", name),)))) for name in ids]
    records = await gateway.records()
    assert len({document["id"] for document in documents}) == len({record.charge_id for record in records}) == len(ids)
    assert [record.request_id for record in records[:2]] == ["same", "same"]
    assert not {record.request_id for record in records} & set(ids[2:])


async def test_chat_slow_reader_gets_merged_deltas_and_the_whole_text(mesh: Mesh) -> None:
    def play(attempt: PlayedAttempt) -> None:
        for number in range(400):
            attempt.delta(f"{number:03}" * 100)
        attempt.finish()

    await mesh.add_engine(play)
    gateway = await mesh.start_gateway()
    call = gateway.chat(request(stream=True))
    data = (await call.read()).data
    await mesh.router.until_done(mesh.router.wants[0].want_id)
    while (body := await call.read()) is not grpc.aio.EOF:
        data += body.data
    chunks = [event for event in events(data) if event != "[DONE]"]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text.endswith("399" * 100)
    assert len(chunks) < 400


async def test_models_are_those_the_key_may_use(gateway: RunningGateway) -> None:
    body = await gateway.openai.ListModels(openai_pb2.ListModelsRequest(), metadata=credentials(SECRET), timeout=10)
    document = json.loads(body.data)
    assert body.content_type == "application/json"
    check("ListModelsResponse", document)
    assert [model["id"] for model in document["data"]] == [NAME]
    body = await gateway.openai.GetModel(openai_pb2.GetModelRequest(model=NAME), metadata=credentials(SECRET), timeout=10)
    check("Model", json.loads(body.data))
    assert json.loads(body.data) == document["data"][0]
    body = await gateway.openai.ListModels(openai_pb2.ListModelsRequest(), metadata=credentials(LIMITED_SECRET), timeout=10)
    assert json.loads(body.data)["data"] == []
