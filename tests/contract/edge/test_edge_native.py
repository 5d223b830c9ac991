"""Native gRPC on the same ports: bidirectional streams, TLS with ALPN, and the clocks that must not end them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from deploy.envoy.settings import EdgeLimits
from inferway.edge.v1 import inference_pb2 as native
from inferway.edge.v1 import inference_pb2_grpc
from tests.harness.edge import Edge, running_edge
from tests.harness.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


def start(model: str) -> native.GenerateRequest:
    return native.GenerateRequest(start=native.GenerateStart(model=model))


CANCEL = native.GenerateRequest(cancel=native.GenerateCancel())


@pytest_asyncio.fixture(loop_scope="module", params=["plain", "tls"])
async def stub(edge: Edge, gateway: ScriptedGateway, request: pytest.FixtureRequest) -> AsyncIterator[inference_pb2_grpc.InferenceStub]:
    if request.param == "plain":
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{edge.plain_port}")
    else:
        credentials = grpc.ssl_channel_credentials(edge.certificates.ca.read_bytes())
        channel = grpc.aio.secure_channel(f"localhost:{edge.tls_port}", credentials)
    async with channel:
        yield inference_pb2_grpc.InferenceStub(channel)


async def test_generate_both_directions_stay_open(stub: inference_pb2_grpc.InferenceStub) -> None:
    call = stub.Generate(timeout=20)
    for model in ("one", "two"):
        await call.write(start(model))
        assert (await call.read()).accepted.model == model
    await call.write(CANCEL)
    assert (await call.read()).finished.finish_reason == "cancelled"
    assert await call.read() is grpc.aio.EOF
    assert ("x-scripted", "1") in list(await call.initial_metadata())
    assert await call.code() == grpc.StatusCode.OK


async def test_generate_client_gone_cancels_the_handler(stub: inference_pb2_grpc.InferenceStub, gateway: ScriptedGateway) -> None:
    call = stub.Generate(timeout=20)
    await call.write(start("hang"))
    await asyncio.wait_for(gateway.entered.wait(), 10)
    call.cancel()
    await asyncio.wait_for(gateway.cancelled.wait(), 10)


async def test_generate_request_id_is_answered_in_the_initial_metadata(stub: inference_pb2_grpc.InferenceStub) -> None:
    call = stub.Generate(timeout=20, metadata=(("x-request-id", "native-1"),))
    await call.write(start("one"))
    assert ("x-request-id", "native-1") in list(await call.initial_metadata())
    call.cancel()


async def test_generate_outlives_the_receive_limit_once_its_headers_are_sent(tmp_path: Path) -> None:
    """The request side of a bidirectional stream never ends, so the limit on receiving it must stop counting at the response headers."""
    async with (
        running_edge(tmp_path, EdgeLimits(receive_s=0.5)) as edge,
        grpc.aio.insecure_channel(f"127.0.0.1:{edge.plain_port}") as channel,
    ):
        inference = inference_pb2_grpc.InferenceStub(channel)
        late, early = inference.Generate(timeout=20), inference.Generate(timeout=20)
        await early.write(start("slow-accept"))
        await early.initial_metadata()
        await late.write(start("slow-headers"))
        assert await late.code() == grpc.StatusCode.UNKNOWN
        assert await late.details() == "The request did not arrive completely in time."
        edge.gateway.gate.release()
        edge.gateway.gate.release()
        assert (await early.read()).accepted.model == "slow-accept"
