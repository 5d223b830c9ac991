"""What clients see when a gateway dies, hangs or comes back, and when a client is too slow."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx2
import pytest
import pytest_asyncio

from deploy.envoy.settings import EdgeLimits
from inferway.edge.v1 import inference_pb2 as native
from inferway.edge.v1 import inference_pb2_grpc
from tests.harness.edge import Edge, running_edge, until

CHAT = "/v1/chat/completions"


@pytest_asyncio.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with running_edge(tmp_path, EdgeLimits(health_interval_s=0.1)) as running:
        yield running


@pytest_asyncio.fixture
async def http(edge: Edge) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=edge.url, timeout=20) as client:
        yield client


async def test_gateway_dead_is_a_prompt_503_and_a_new_one_is_used_again(edge: Edge, http: httpx2.AsyncClient) -> None:
    assert (await http.post(CHAT, json={"model": "whole"})).status_code == 200
    await edge.wire.cut()
    async with asyncio.timeout(1):
        answer = await http.post(CHAT, json={"model": "whole", "stream": True})
    assert answer.status_code == 503
    assert answer.json()["error"] == {
        "message": "The service is not available at the moment.",
        "type": "server_error",
        "param": None,
        "code": "service_unavailable",
    }
    assert answer.headers["retry-after"] == "1"

    async def unhealthy() -> bool:
        return (await http.get("/healthz")).status_code == 503

    async def serving() -> bool:
        return (await http.post(CHAT, json={"model": "whole"})).status_code == 200

    await until(unhealthy)
    async with asyncio.timeout(1):
        assert (await http.get("/v1/models")).status_code == 503
    await edge.wire.mend()
    await until(serving, timeout_s=5)
    assert (await http.get("/healthz")).status_code == 200


async def test_gateway_dead_is_unavailable_for_native_grpc(edge: Edge) -> None:
    await edge.wire.cut()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{edge.plain_port}") as channel:
        start = native.GenerateRequest(start=native.GenerateStart(model="one"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await inference_pb2_grpc.InferenceStub(channel).Generate(iter([start]), timeout=10).read()
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == "The service is not available at the moment."


async def test_gateway_dies_in_mid_stream_the_client_sees_a_cut_never_a_clean_end(edge: Edge, http: httpx2.AsyncClient) -> None:
    edge.gateway.gate.release()
    received = b""
    with pytest.raises(httpx2.RemoteProtocolError):
        async with http.stream("POST", CHAT, json={"model": "gated", "stream": True}) as answer:
            async for piece in answer.aiter_bytes():
                received += piece
                await edge.wire.cut()
    assert received.startswith(b"data: ")
    assert b"[DONE]" not in received


async def test_nothing_moves_for_too_long_is_504(tmp_path: Path) -> None:
    async with running_edge(tmp_path, EdgeLimits(idle_s=0.5)) as edge, httpx2.AsyncClient(base_url=edge.url, timeout=20) as http:
        answer = await http.post(CHAT, json={"model": "hang"})
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "timeout"
        await asyncio.wait_for(edge.gateway.cancelled.wait(), 10)


@pytest.mark.parametrize(
    "sent",
    [b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{", b"POST /v1/chat/completions HTTP/1.1\r\nhost:"],
    ids=["body", "headers"],
)
async def test_request_that_never_completes_is_408(tmp_path: Path, sent: bytes) -> None:
    async with running_edge(tmp_path, EdgeLimits(receive_s=0.5, headers_s=0.5)) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.plain_port)
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request_timeout"' in answer
        assert edge.gateway.num_bodies == 0


async def test_too_many_streams_are_503_and_the_running_ones_go_on(tmp_path: Path) -> None:
    async with running_edge(tmp_path, EdgeLimits(max_streams=1)) as edge, httpx2.AsyncClient(base_url=edge.url, timeout=20) as http:
        edge.gateway.gate.release()
        async with http.stream("POST", CHAT, json={"model": "gated", "stream": True}) as first:
            pieces = first.aiter_bytes()
            await anext(pieces)
            second = await http.post(CHAT, json={"model": "whole"})
            assert second.status_code == 503
            assert second.json()["error"]["code"] == "service_unavailable"
            for _ in range(4):
                edge.gateway.gate.release()
            rest = b"".join([piece async for piece in pieces])
        assert rest.endswith(b"data: [DONE]\n\n")


async def test_slow_reader_holds_little_and_its_end_cancels_the_handler(edge: Edge) -> None:
    body = b'{"model":"flood","stream":true}'
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", edge.plain_port))
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    before = -1

    async def stalled() -> bool:
        nonlocal before
        before, earlier = edge.gateway.flooded_bytes, before
        if before != earlier:
            await asyncio.sleep(0.3)
        return before == earlier > 0

    await until(stalled)
    assert edge.gateway.flooded_bytes < 1 << 20
    client.close()
    await asyncio.wait_for(edge.gateway.cancelled.wait(), 10)
    assert edge.gateway.flooded_bytes < 64 << 20


async def test_too_many_connections_are_closed_and_the_open_ones_are_served(tmp_path: Path) -> None:
    async with running_edge(tmp_path, EdgeLimits(max_connections=1)) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.plain_port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200 ")
        extra, extra_writer = await asyncio.open_connection("127.0.0.1", edge.plain_port)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(extra.read(), 10) == b""
        extra_writer.close()
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 10)).count(b"HTTP/1.1 200 ") == 1
        writer.close()
