"""Odd input over gRPC, and bytes that no HTTP client would send: refused or harmless, whoever else is served meanwhile."""

from __future__ import annotations

import asyncio
import re

import grpc
import pytest

from inferway.edge.v1 import inference_pb2 as pb
from inferway.edge.v1 import inference_pb2_grpc
from services.kit.status import from_rpc_error
from tests.harness.mesh import MODEL, Mesh
from tests.harness.rest import Rest
from tests.harness.traffic import DEADLINE_S, Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

NAN, INF = float("nan"), float("inf")
SANE_ID = re.compile(rb"[a-z0-9-]{1,128}")
NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
"""All that take a fraction."""


def with_number(name: str, value: float) -> pb.Sampling:
    sampling = pb.Sampling()
    setattr(sampling, name, value)
    return sampling


def odd_starts() -> list[tuple[str, pb.GenerateStart]]:
    """Starts that have to be refused, and the field that is at fault."""
    sampling = [(f"sampling.{name}", with_number(name, value)) for name in NUMBERS for value in (NAN, INF, -INF, 1e9)]
    biases = ({5: NAN}, {5: 1e9}, {999_999_999: 1.0}, {2**32 - 1: 1.0}, dict.fromkeys(range(100_000), 1.0))
    sampling += [("sampling.logit_bias", pb.Sampling(logit_bias=bias)) for bias in biases]
    starts = [(param, pb.GenerateStart(messages=[pb.ChatMessage(role="user", content="hi")], sampling=one)) for param, one in sampling]
    for field, token_ids in (("prompt_token_ids", [5, 999_999_999]), ("stop_token_ids", [999_999_999]), ("stop_token_ids", [5] * 17)):
        start = pb.GenerateStart(prompt_token_ids=[5])
        getattr(start, field).extend(token_ids)
        starts.append((field, start))
    starts.append(("stop", pb.GenerateStart(prompt_token_ids=[5], stop=["x"] * 5)))
    starts.append(("max_completion_tokens", pb.GenerateStart(prompt_token_ids=[5], max_completion_tokens=2**31 - 1)))
    starts.append(("messages", pb.GenerateStart()))
    return starts


async def test_en_05_odd_parameters_over_grpc_name_their_field_and_harm_nobody_else(mesh: Mesh) -> None:
    before = mesh.replicas()
    async with Clients(mesh) as clients:
        stub = inference_pb2_grpc.InferenceStub(clients.channel)
        reference = await clients.ask_grpc("hi", 20)
        neighbours = asyncio.gather(*(clients.ask_grpc("hi", 20) for _ in range(30)))
        for param, start in odd_starts():
            start.model = MODEL
            call = stub.Generate(
                iter([pb.GenerateRequest(start=start)]), timeout=DEADLINE_S, metadata=(("authorization", f"Bearer {mesh.key}"),)
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            error = from_rpc_error(caught.value)
            assert (error.code, error.metadata["param"]) == ("INVALID_ARGUMENT", param)
        texts = {(told.failure, told.text) for told in await neighbours}
    assert texts == {("", reference.text)}
    assert mesh.replicas() == before


@pytest.mark.parametrize("given", [b"a\r\n b", b"a\nb", b"a\rb", b"a\0b", b"a\r\nx-other: b"], ids=repr)
async def test_en_06_request_id_with_a_line_break_never_comes_back(mesh: Mesh, given: bytes) -> None:
    """It is replaced, loses the break, or the request is refused; what stands behind the break is no header of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", mesh.ports.edge_http)
    head = f"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {mesh.key}\r\nconnection: close\r\nx-request-id: "
    writer.write(head.encode() + given + b"\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    status, _, rest = answer.partition(b"\r\n")
    headers = rest.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    assert status.split(b" ")[1] in (b"200", b"400")
    assert not any(header.startswith(b"x-other") for header in headers)
    ids = [header.partition(b": ")[2] for header in headers if header.startswith(b"x-request-id")]
    assert all(SANE_ID.fullmatch(one) for one in ids)
    async with Rest(mesh) as client:
        assert (await client.chat()).status_code == 200
