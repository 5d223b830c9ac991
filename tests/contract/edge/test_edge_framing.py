"""Messages whose length can be read in two ways are refused, and nothing hidden behind them is ever served."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.edge import Edge, raw_exchange
from tests.harness.http2_frames import DATA, HEADERS, PREFACE, RST_STREAM, data_frame, headers_frame, read_frame, settings_frame
from tests.harness.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="module")
HIDDEN = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
BODY = b'{"model":"whole"}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
AMBIGUOUS = {
    "both": b"content-length: %d\r\ntransfer-encoding: chunked\r\n\r\n" % len(BODY) + CHUNKED,
    "both-reversed": b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n" + CHUNKED,
    "two-lengths": b"content-length: %d\r\ncontent-length: 3\r\n\r\n" % len(BODY) + BODY,
    "length-list": b"content-length: %d, 3\r\n\r\n" % len(BODY) + BODY,
    "signed-length": b"content-length: +%d\r\n\r\n" % len(BODY) + BODY,
    "negative-length": b"content-length: -1\r\n\r\n" + BODY,
    "hex-length": b"content-length: 0x11\r\n\r\n" + BODY,
    "spaced-name": b"content-length : %d\r\n\r\n" % len(BODY) + BODY,
    "unknown-coding": b"transfer-encoding: xchunked\r\n\r\n" + CHUNKED,
    "coding-list": b"transfer-encoding: chunked, identity\r\n\r\n" + CHUNKED,
    "coding-twice": b"transfer-encoding: chunked\r\ntransfer-encoding: cow\r\n\r\n" + CHUNKED,
    "tab-coding": b"transfer-encoding:\x0bchunked\r\n\r\n" + CHUNKED,
    "bad-chunk-size": b"transfer-encoding: chunked\r\n\r\nzz\r\n" + BODY + b"\r\n0\r\n\r\n",
    "signed-chunk-size": b"transfer-encoding: chunked\r\n\r\n+11\r\n" + BODY + b"\r\n0\r\n\r\n",
    "huge-chunk-size": b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunk-too-short": b"transfer-encoding: chunked\r\n\r\n3\r\n" + BODY + b"\r\n0\r\n\r\n",
    "nul-in-header": b"x: a\x00b\r\ncontent-length: 0\r\n\r\n",
}


@pytest.mark.parametrize("kind", sorted(AMBIGUOUS))
async def test_ambiguous_framing_is_one_refusal_and_a_closed_connection(edge: Edge, gateway: ScriptedGateway, kind: str) -> None:
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + AMBIGUOUS[kind]
    answer = await raw_exchange(edge.plain_port, request + HIDDEN)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert gateway.num_bodies == 0
    assert "/inferway.edge.v1.OpenAI/ListModels" not in gateway.paths


async def test_well_framed_pipeline_is_two_answers(edge: Edge, gateway: ScriptedGateway) -> None:
    """The probe itself: without ambiguity the second request is served, so the tests above can fail."""
    good = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNKED
    last = HIDDEN.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    answer = await raw_exchange(edge.plain_port, good + last)
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert gateway.paths[-2:] == ["/inferway.edge.v1.OpenAI/CreateChatCompletion", "/inferway.edge.v1.OpenAI/ListModels"]


async def test_length_given_twice_alike_is_at_most_one_answer(edge: Edge, gateway: ScriptedGateway) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + b"content-length: %d\r\n" % len(BODY) * 2
    answer = await raw_exchange(edge.plain_port, head + b"\r\n" + BODY + HIDDEN)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("stated", [1, 400])
async def test_http2_length_that_differs_from_the_body_is_reset(edge: Edge, gateway: ScriptedGateway, stated: int) -> None:
    head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", "/v1/chat/completions"),
        ("content-type", "application/json"),
        ("content-length", str(stated)),
    ]
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.plain_port)
    writer.write(PREFACE + settings_frame() + headers_frame(1, head) + data_frame(1, BODY, end_stream=True))
    seen = []
    while RST_STREAM not in seen:
        kind, _, payload = await asyncio.wait_for(read_frame(reader), 10)
        seen.append(kind)
        assert not (kind == DATA and b"hello" in payload)
    writer.close()
    assert HEADERS not in seen
    assert gateway.num_bodies == 0
