"""Clients that leave at any moment and by any means: everything is given back, and what was made is billed once."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Awaitable, Callable

import pytest

from tests.harness.bill import Bill
from tests.harness.eventually import eventually
from tests.harness.measure import is_idle, num_running
from tests.harness.mesh import Mesh
from tests.harness.rest import CHAT, Rest, request
from tests.harness.traffic import Clients

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

NUM_CLIENTS = 45
ENDLESS = 4000
Leave = Callable[[Mesh, Clients], Awaitable[str]]
"""Begins a stream and leaves it after some text; returns its completion id."""


async def test_cancel_at_any_moment_gives_everything_back(mesh: Mesh) -> None:
    """Queued, in prefill, decoding, at the last token, a third with several choices; afterwards a request that needs half of a replica's
    memory is admitted."""
    moments = random.Random(7)
    async with Clients(mesh) as clients:
        reference = (await clients.ask_grpc("hi", 20)).text

        async def leave(patience_s: float, max_tokens: int) -> None:
            call = clients.generate("word " * moments.choice((1, 800)), max_tokens, moments.choice((1, 1, 4)))
            try:
                async with asyncio.timeout(patience_s):
                    async for _ in call:
                        pass
            except TimeoutError:
                call.cancel()

        patience = [moments.choice((0.0, 0.01, 0.05, 0.2, 0.5)) for _ in range(NUM_CLIENTS)]
        await asyncio.gather(*(leave(patience_s, moments.choice((2, 8, ENDLESS))) for patience_s in patience))
        await eventually(lambda: is_idle(mesh), 10)
        large = await clients.ask_whole("word " * 8000, 2)
        assert (large.failure, large.prompt_tokens > 8000) == ("", True)
        assert (await clients.ask_grpc("hi", 20)).text == reference


async def leave_grpc(mesh: Mesh, clients: Clients) -> str:
    call, completion_id, text = clients.generate("hi", ENDLESS), "", ""
    async for message in call:
        completion_id, text = message.accepted.completion_id or completion_id, text + message.delta.text
        if len(text) > 20:
            break
    call.cancel()
    return completion_id


async def leave_rest(mesh: Mesh, clients: Clients) -> str:
    completion_id, text = "", ""
    async with Rest(mesh) as rest:
        events = rest.events(max_tokens=ENDLESS)
        async for event in events:
            chunk = json.loads(event)
            completion_id, text = chunk["id"], text + (chunk["choices"][0]["delta"].get("content") or "")
            if len(text) > 20:
                break
        await events.aclose()
    return completion_id


async def leave_by_reset(mesh: Mesh, clients: Clients) -> str:
    """A TCP reset instead of a polite end."""
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", mesh.ports.edge_http)) as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await loop.sock_sendall(connection, raw_request(mesh, stream=True, max_tokens=ENDLESS))
        received = b""
        while received.count(b'"content":"') < 6:
            received += await loop.sock_recv(connection, 4096)
    return received.split(b'"id":"')[1].split(b'"')[0].decode()


def raw_request(mesh: Mesh, **fields: object) -> bytes:
    body = json.dumps(request(**fields)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {mesh.key}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def leave_choices(mesh: Mesh, clients: Clients) -> str:
    call, completion_id, text = clients.generate("hi", ENDLESS, 4), "", ""
    async for message in call:
        completion_id, text = message.accepted.completion_id or completion_id, text + message.delta.text
        if len(text) > 80:
            break
    call.cancel()
    return completion_id


@pytest.mark.parametrize("leave", [leave_grpc, leave_rest, leave_by_reset, leave_choices])
async def test_cancelled_streams_are_billed_for_what_was_made_once(mesh: Mesh, leave: Leave) -> None:
    """At least what the client got, at most what the engine made until it heard of it; both books agree to the token."""
    async with Clients(mesh) as clients:
        left = await asyncio.gather(*(leave(mesh, clients) for _ in range(8)))
    rows = await Bill(mesh).until_rows(left)
    assert {row.outcome for row in rows} == {"cancelled"}
    for row in rows:
        assert row.prompt_tokens > 0
        assert 3 <= row.completion_tokens < ENDLESS // 4
        assert row.completion_tokens == sum(attempt.output_tokens for attempt in row.attempts)


async def test_stalled_reader_hurts_only_itself(mesh: Mesh) -> None:
    with socket.create_connection(("127.0.0.1", mesh.ports.edge_http)) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.sendall(raw_request(mesh, stream=True, max_tokens=ENDLESS))
        await eventually(lambda: is_running(mesh), 10)
        async with Clients(mesh) as clients:
            others = await asyncio.gather(*(ask("hi", 10) for ask in clients.surfaces * 2))
        assert [other.failure for other in others] == [""] * 6
        assert await is_running(mesh)
    await eventually(lambda: is_idle(mesh), 5)


async def is_running(mesh: Mesh) -> bool:
    return await num_running(mesh) == 1
