"""Who counts as alive: whoever answers at all, whatever the answer; a port that is open is no answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from deploy.local.clients import grpc_alive, grpc_health

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SHORT_S = 0.3


@asynccontextmanager
async def service(status: "health_pb2.HealthCheckResponse.ServingStatus") -> AsyncIterator[int]:
    """A server with nothing but its health."""
    servicer, server = health.aio.HealthServicer(), grpc.aio.server()
    await servicer.set("", status)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port
    await server.stop(0)


@pytest.mark.parametrize(("status", "is_ready"), [(SERVING, True), (NOT_SERVING, False)])
async def test_alive_is_who_answers_even_when_it_is_not_ready(status: int, is_ready: bool) -> None:
    async with service(status) as port:
        assert await grpc_health(port)() is is_ready
        assert await grpc_alive(port)()


async def test_alive_is_not_who_accepts_connections_and_says_nothing() -> None:
    held = []
    server = await asyncio.start_server(lambda reader, writer: held.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert not await grpc_alive(port, SHORT_S)()
    for writer in held:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_alive_is_not_who_is_not_there() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert not await grpc_alive(port, SHORT_S)()
