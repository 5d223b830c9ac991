"""Everything that is refused is refused before a header is sent, with the right status, in OpenAI's shape, streamed or not."""

import json
from pathlib import Path
from typing import Any

import grpc
import jsonschema
import pytest
from google.api.httpbody_pb2 import HttpBody

from inferway.edge.v1 import openai_pb2
from tests.contract.gateway.conftest import Mesh
from tests.harness.gateway_service import LIMITED_SECRET, SECRET, RunningGateway, credentials, refusal, request

SCHEMAS = json.loads((Path(__file__).parents[2] / "data" / "openai" / "chat_schemas.json").read_text())
INVALID = grpc.StatusCode.INVALID_ARGUMENT
MARKER = "marker-of-the-secret-prompt"


def check_shape(error: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**SCHEMAS, "$ref": "#/$defs/ErrorResponse"}).validate({"error": error})
    assert error["message"]
    assert "Traceback" not in error["message"]
    assert MARKER not in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": None}, "model", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "wizard", "content": MARKER}]}, "messages[0].role", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_value"),
        ({"max_tokns": 3}, "max_tokns", "unknown_parameter"),
        ({"messages": [{"role": "user", "content": MARKER, "nmae": "x"}]}, "messages[0].nmae", "unknown_parameter"),
        ({"tools": [{"type": "function"}]}, "tools", "unsupported_parameter"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "unsupported_parameter"),
        ({"n": 17}, "n", "invalid_value"),
        ({"logit_bias": {"100000": 1}}, "logit_bias", "token_out_of_range"),
        ({"stop_token_ids": [100_000]}, "stop_token_ids", "token_out_of_range"),
        ({"top_logprobs": 1}, "top_logprobs", "invalid_value"),
        ({"max_tokens": 100_000}, "max_tokens", "context_length_exceeded"),
        ({"max_completion_tokens": 100_000}, "max_completion_tokens", "context_length_exceeded"),
        ({"max_completion_tokens": 100_001, "max_tokens": 100_000}, "max_tokens", "context_length_exceeded"),
        ({"max_completion_tokens": 100_000, "max_tokens": 100_001}, "max_completion_tokens", "context_length_exceeded"),
        ({"messages": [{"role": "user", "content": MARKER * 100}]}, "messages", "context_length_exceeded"),
    ],
)
async def test_refusal_wrong_field_is_400_and_names_it(
    gateway: RunningGateway, mesh: Mesh, fields: dict[str, Any], param: str, code: str, stream: bool
) -> None:
    call = gateway.chat(request(**{"stream": stream, **fields}))
    status, error, trailers = await refusal(call)
    assert (status, trailers["x-http-status"]) == (INVALID, "400")
    check_shape(error)
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert await gateway.records() == []
    assert mesh.router.wants == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"a":1,"a":2}', b"\xff", b"[" * 10_000], ids=repr)
async def test_refusal_broken_body_is_400(gateway: RunningGateway, body: bytes) -> None:
    status, error, trailers = await refusal(gateway.chat(body))
    assert (status, trailers["x-http-status"], error["code"]) == (INVALID, "400", "invalid_json")
    check_shape(error)


async def test_refusal_too_large_body_is_413(mesh: Mesh) -> None:
    await mesh.add_engine()
    gateway = await mesh.start_gateway(max_body_bytes=1000)
    body = request(messages=[{"role": "user", "content": "x" * 1000}])
    status, error, trailers = await refusal(gateway.chat(body))
    assert (status, trailers["x-http-status"], error["code"]) == (INVALID, "413", "body_too_large")


async def test_refusal_body_of_five_megabytes_is_413(gateway: RunningGateway) -> None:
    _, error, trailers = await refusal(gateway.chat(request(messages=[{"role": "user", "content": "x" * 5_000_000}])))
    assert (trailers["x-http-status"], error["code"]) == ("413", "body_too_large")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("secret", [SECRET, LIMITED_SECRET])
async def test_refusal_unknown_or_forbidden_model_is_404(gateway: RunningGateway, secret: str, stream: bool) -> None:
    model = "none" if secret == SECRET else "tiny"
    status, error, trailers = await refusal(gateway.chat(request(model=model, stream=stream), secret=secret))
    assert (status, trailers["x-http-status"]) == (grpc.StatusCode.NOT_FOUND, "404")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    check_shape(error)


@pytest.mark.parametrize("secret", [None, "ifw-" + "?" * 43, "ifw-" + "z" * 43, SECRET[:-1]])
async def test_refusal_missing_or_bad_key_is_401_and_never_repeats_it(gateway: RunningGateway, secret: str | None) -> None:
    call = gateway.chat(b"not even json", secret=secret)
    status, error, trailers = await refusal(call)
    assert (status, trailers["x-http-status"]) == (grpc.StatusCode.UNAUTHENTICATED, "401")
    assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")
    assert secret is None or secret not in str(trailers) + str(await call.details())


async def test_refusal_two_authorization_headers_are_401(gateway: RunningGateway) -> None:
    _, _, trailers = await refusal(gateway.chat(request(), metadata=credentials(SECRET)))
    assert trailers["x-http-status"] == "401"


async def test_refusal_idempotency_key_is_400_not_ignored(gateway: RunningGateway) -> None:
    status, error, _ = await refusal(gateway.chat(request(), metadata=(("idempotency-key", "once"),)))
    assert (status, error["param"], error["code"]) == (INVALID, "Idempotency-Key", "unsupported_parameter")


@pytest.mark.parametrize(
    ("reason", "code", "http"),
    [
        ("QUEUE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED, "429"),
        ("NO_READY_REPLICA", grpc.StatusCode.UNAVAILABLE, "503"),
        ("DRAINING", grpc.StatusCode.UNAVAILABLE, "503"),
        ("QUEUE_TIMEOUT", grpc.StatusCode.DEADLINE_EXCEEDED, "504"),
    ],
)
async def test_refusal_of_the_router_is_passed_on_with_its_time(
    gateway: RunningGateway, mesh: Mesh, reason: str, code: grpc.StatusCode, http: str
) -> None:
    mesh.router.reject = reason
    status, error, trailers = await refusal(gateway.chat(request(stream=True)))
    assert (status, trailers["x-http-status"], error["code"]) == (code, http, reason.lower())
    assert trailers["retry-after"] == "2"
    check_shape(error)


async def test_refusal_method_that_is_not_served_is_501_with_a_sentence(gateway: RunningGateway) -> None:
    message = openai_pb2.CreateEmbeddingRequest(body=HttpBody(data=b"{}"))
    call = gateway.openai.CreateEmbedding(message, metadata=credentials(SECRET), timeout=10)
    status, error, trailers = await refusal(call)
    assert (status, trailers["x-http-status"]) == (grpc.StatusCode.UNIMPLEMENTED, "501")
    assert "chat/completions" in error["message"]


async def test_refusal_leaves_no_secret_prompt_or_answer_in_the_logs(mesh: Mesh, capfd: pytest.CaptureFixture[str]) -> None:
    def play(attempt: Any) -> None:
        attempt.delta("marker-of-the-answer")
        attempt.fail("STEP_FAILED", retryable=False)

    await mesh.add_engine(play)
    gateway = await mesh.start_gateway(log_level="DEBUG")
    for fields in ({}, {"temperature": MARKER}, {MARKER: 1}, {"stop": [MARKER, ""]}):
        await refusal(gateway.chat(request(messages=[{"role": "user", "content": MARKER}], **fields)))
    await refusal(gateway.chat(MARKER.encode()))
    await refusal(gateway.chat(request(), secret="ifw-" + "u" * 43))
    logged = capfd.readouterr().err
    assert "request refused" in logged
    for secret in (MARKER, "marker-of-the-answer", SECRET, "u" * 43):
        assert secret not in logged
