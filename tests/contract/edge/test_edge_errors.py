"""Every refusal, whoever makes it, has OpenAI's shape for REST clients and a plain status for gRPC clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import httpx2
import openai
import pytest
import pytest_asyncio

from inferway.edge.v1 import inference_pb2 as native
from inferway.edge.v1 import inference_pb2_grpc
from tests.harness.edge import Edge, raw_exchange
from tests.harness.scripted_gateway import GRPC_OF, QUOTED, ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = "/v1/chat/completions"
LIMIT = 4 << 20


def error_of(answer: httpx2.Response, status: int) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert not {"grpc-status", "grpc-message", "x-http-status", "x-openai-error"} & set(answer.headers)
    document = answer.json()
    assert set(document) == {"error"}
    error: dict[str, object] = document["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]
    return error


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", sorted(GRPC_OF))
async def test_gateway_refusal_keeps_status_and_body(http: httpx2.AsyncClient, status: int, stream: bool) -> None:
    answer = await http.post(CHAT, json={"model": f"refuse:{status}", "stream": stream})
    error = error_of(answer, status)
    assert error["message"] == "Refused by the script."
    assert (error["param"], error["code"]) == ("model", "scripted")
    assert answer.headers.get("retry-after") == ("7" if status == 429 else None)
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ],
)
async def test_gateway_refusal_is_the_official_clients_exception(
    client: openai.AsyncOpenAI, status: int, raised: type[openai.APIStatusError]
) -> None:
    with pytest.raises(raised) as caught:
        await client.chat.completions.create(model=f"refuse:{status}", messages=[{"role": "user", "content": "x"}], stream=True)
    assert caught.value.code == "scripted"


@pytest.mark.parametrize("kind", ["status", "late", "rich"])
@pytest.mark.parametrize(
    ("code", "status", "type_"),
    [
        ("INVALID_ARGUMENT", 400, "invalid_request_error"),
        ("UNAUTHENTICATED", 401, "authentication_error"),
        ("PERMISSION_DENIED", 403, "permission_error"),
        ("RESOURCE_EXHAUSTED", 429, "rate_limit_error"),
        ("INTERNAL", 500, "server_error"),
        ("UNAVAILABLE", 503, "server_error"),
        ("DEADLINE_EXCEEDED", 504, "server_error"),
    ],
)
async def test_bare_grpc_status_takes_the_openai_shape(http: httpx2.AsyncClient, kind: str, code: str, status: int, type_: str) -> None:
    error = error_of(await http.post(CHAT, json={"model": f"{kind}:{code}", "stream": True}), status)
    assert error["type"] == type_
    assert error["message"] == ("after the metadata" if kind == "late" else QUOTED)


@pytest.mark.parametrize("model", ["refuse:404", "status:NOT_FOUND", "rich:NOT_FOUND", "late:NOT_FOUND"])
async def test_refusal_of_a_unary_method_takes_the_openai_shape(http: httpx2.AsyncClient, model: str) -> None:
    error = error_of(await http.get(f"/v1/models/{model}"), 404)
    assert error["type"] == "invalid_request_error"
    assert error["message"] in ("Refused by the script.", "after the metadata", QUOTED)


async def test_fault_of_the_gateway_is_a_shaped_500(http: httpx2.AsyncClient) -> None:
    assert error_of(await http.post(CHAT, json={"model": "crash"}), 500)["type"] == "server_error"


async def test_unimplemented_method_is_501(http: httpx2.AsyncClient) -> None:
    error_of(await http.post("/v1/embeddings", json={"model": "whole"}), 501)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\x00\xff", b'{"a":' * 3000], ids=["empty", "cut", "list", "binary", "deep"])
async def test_body_that_is_no_request_reaches_the_gateway_which_refuses_it(http: httpx2.AsyncClient, body: bytes) -> None:
    error_of(await http.post(CHAT, content=body, headers={"content-type": "application/json"}), 400)


async def test_body_at_the_limit_passes_and_above_it_is_413(http: httpx2.AsyncClient, gateway: ScriptedGateway) -> None:
    head = b'{"model":"whole","pad":"'
    fits = head + b"x" * (LIMIT - len(head) - 2) + b'"}'
    assert (await http.post(CHAT, content=fits)).status_code == 200
    error = error_of(await http.post(CHAT, content=fits[:-2] + b'x"}'), 413)
    assert error["code"] == "request_too_large"
    assert gateway.num_bodies == 1


async def test_endless_chunked_body_is_413_and_reaches_no_gateway(edge: Edge, gateway: ScriptedGateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.plain_port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    answer = asyncio.create_task(reader.readuntil(b"}}"))
    while not answer.done():
        writer.write(piece)
        done, _ = await asyncio.wait({answer, asyncio.create_task(writer.drain())}, return_when=asyncio.FIRST_COMPLETED)
        if any(one is not answer and one.exception() for one in done):
            break
    assert (await asyncio.wait_for(answer, 10)).startswith(b"HTTP/1.1 413 ")
    writer.close()
    assert gateway.num_bodies == 0


@pytest.mark.parametrize("path", [CHAT, "/inferway.edge.v1.Inference/ListServedModels"])
async def test_content_type_that_nobody_serves_is_refused_with_a_sentence(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.post(path, content=bytes(5), headers={"content-type": "application/grpc-web"})
    assert answer.status_code >= 400
    error_of(answer, answer.status_code)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "gzip, gzip"])
async def test_compressed_body_is_415(http: httpx2.AsyncClient, gateway: ScriptedGateway, encoding: str) -> None:
    error = error_of(await http.post(CHAT, content=b"x", headers={"content-encoding": encoding}), 415)
    assert error["code"] == "unsupported_content_encoding"
    assert gateway.num_bodies == 0


async def test_wrong_method_is_405_and_names_the_right_one(http: httpx2.AsyncClient) -> None:
    for method, path, allowed in [
        ("GET", CHAT, "POST"),
        ("DELETE", CHAT, "POST"),
        ("POST", "/v1/models", "GET"),
        ("PUT", "/v1/models/a", "GET"),
    ]:
        answer = await http.request(method, path)
        assert error_of(answer, 405)["code"] == "method_not_supported"
        assert answer.headers["allow"] == allowed


async def test_oversized_headers_are_431(http: httpx2.AsyncClient) -> None:
    error_of(await http.get("/v1/models", headers={"x-long": "x" * 100_000}), 431)


async def test_bytes_that_are_no_http_are_400(edge: Edge, gateway: ScriptedGateway) -> None:
    assert (await raw_exchange(edge.plain_port, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest_asyncio.fixture(loop_scope="module")
async def stub(edge: Edge, gateway: ScriptedGateway) -> AsyncIterator[inference_pb2_grpc.InferenceStub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{edge.plain_port}") as channel:
        yield inference_pb2_grpc.InferenceStub(channel)


@pytest.mark.parametrize("status", sorted(GRPC_OF))
async def test_native_grpc_refusal_keeps_code_and_text(stub: inference_pb2_grpc.InferenceStub, status: int) -> None:
    start = native.GenerateRequest(start=native.GenerateStart(model=f"refuse:{status}"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Generate(iter([start]), timeout=10).read()
    assert caught.value.code() == GRPC_OF[status]
    assert caught.value.details() == "Refused by the script."


@pytest.mark.parametrize(
    "path", ["/inferway.edge.v1.OpenAI/ListModels", "/grpc.health.v1.Health/Check", "/v1/models", "/inferway.metering.v1.Usage/Query"]
)
async def test_native_grpc_elsewhere_is_unimplemented_in_plain_text(edge: Edge, gateway: ScriptedGateway, path: str) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{edge.plain_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(path)(b"", timeout=10)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == "There is nothing at this URL."
    assert path not in gateway.paths
