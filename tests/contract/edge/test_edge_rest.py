"""The official client through a real Envoy: whole answers, streams, and what happens when either side goes away."""

from __future__ import annotations

import asyncio
import json
import ssl

import httpx2
import openai
import pytest

from tests.harness.edge import Edge
from tests.harness.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="module")
ASK = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"


async def test_chat_whole_answer_is_one_json_document(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="whole", messages=ASK)
    assert answer.choices[0].message.content == "hello"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 4


async def test_chat_stream_is_delivered_in_order_and_complete(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="stream", messages=ASK, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "t0 t1 t2 t3 "
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_models_list_and_names_with_slashes(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["small"]
    assert (await client.models.retrieve("org/name")).id == "org/name"


@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}])
async def test_chat_without_stream_is_never_an_event_stream(http: httpx2.AsyncClient, stream: dict[str, object]) -> None:
    answer = await http.post(CHAT, json={"model": "whole", **stream})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["object"] == "chat.completion"


async def test_models_is_never_an_event_stream(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/v1/models?api-version=1")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["object"] == "list"


async def test_chat_stream_is_an_event_stream_and_never_compressed(http: httpx2.AsyncClient) -> None:
    headers = {"accept-encoding": "gzip, br"}
    async with http.stream("POST", CHAT, json={"model": "stream", "stream": True}, headers=headers) as answer:
        text = await answer.aread()
    assert answer.headers["content-type"] == "text/event-stream"
    assert "content-encoding" not in answer.headers
    assert text.endswith(b"data: [DONE]\n\n")


async def test_chat_stream_each_event_leaves_before_the_next_is_made(http: httpx2.AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.gate.release()
    body = {"model": "gated", "stream": True}
    async with http.stream("POST", CHAT, json=body, headers={"accept-encoding": "gzip, br"}) as answer:
        lines = answer.aiter_lines()
        for expected in ["", "t0 ", "t1 ", "t2 ", "t3 "]:
            line = await asyncio.wait_for(anext(lines), 10)
            assert json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"] == expected
            assert await asyncio.wait_for(anext(lines), 10) == ""
            gateway.gate.release()


async def test_chat_mid_stream_error_is_an_error_event_without_done(http: httpx2.AsyncClient) -> None:
    answer = await http.post(CHAT, json={"model": "breaks", "stream": True})
    events = [line for line in answer.text.splitlines() if line]
    assert answer.status_code == 200
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "replica_lost"
    assert "[DONE]" not in answer.text


async def test_chat_mid_stream_error_is_raised_by_the_official_client(client: openai.AsyncOpenAI) -> None:
    got = []
    with pytest.raises(openai.APIError, match="the replica was lost"):
        async for chunk in await client.chat.completions.create(model="breaks", messages=ASK, stream=True):
            got.append(chunk.choices[0].delta.content)
    assert got == ["", "t0 ", "t1 "]


async def test_chat_client_gone_in_mid_stream_cancels_the_handler(client: openai.AsyncOpenAI, gateway: ScriptedGateway) -> None:
    gateway.gate.release()
    stream = await client.chat.completions.create(model="gated", messages=ASK, stream=True)
    await anext(aiter(stream))
    await asyncio.wait_for(gateway.entered.wait(), 10)
    await stream.close()
    await asyncio.wait_for(gateway.cancelled.wait(), 10)


async def test_chat_client_gone_before_the_first_byte_cancels_the_handler(edge: Edge, gateway: ScriptedGateway) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", edge.plain_port)
    body = b'{"model":"hang"}'
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    await asyncio.wait_for(gateway.entered.wait(), 10)
    writer.close()
    await asyncio.wait_for(gateway.cancelled.wait(), 10)


async def test_large_answer_is_one_complete_document(http: httpx2.AsyncClient) -> None:
    answer = await http.post(CHAT, json={"model": f"big:{3 << 20}"}, headers={"accept-encoding": "identity"})
    assert answer.status_code == 200
    assert len(answer.json()["text"]) == 3 << 20


async def test_large_json_answer_is_compressed_on_request(http: httpx2.AsyncClient) -> None:
    answer = await http.post(CHAT, json={"model": "big:100000"}, headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.json()["text"]) == 100_000


async def test_tls_listener_serves_the_official_client(edge: Edge, gateway: ScriptedGateway) -> None:
    trust = ssl.create_default_context(cafile=str(edge.certificates.ca))
    async with (
        httpx2.AsyncClient(verify=trust) as transport,
        openai.AsyncOpenAI(base_url=f"{edge.tls_url}/v1", api_key="key", max_retries=0, http_client=transport) as client,
    ):
        assert (await client.chat.completions.create(model="whole", messages=ASK)).choices[0].message.content == "hello"
        stream = await client.chat.completions.create(model="stream", messages=ASK, stream=True)
        assert len([chunk async for chunk in stream]) == 6
