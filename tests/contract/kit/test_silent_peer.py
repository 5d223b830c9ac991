"""A peer that is stopped, or whose machine is gone, closes nothing: both sides of a connection find out by themselves."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from services.kit import channel, server
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings
from tests.harness.kit_service import Echo, caller

NOTICE_S = 25.0
Start = Callable[..., subprocess.Popen[str]]

_SERVER = """
import asyncio
from services.kit.metrics import new_registry
from services.kit.server import ServerSettings
from tests.harness.kit_service import Echo

async def main():
    echo = Echo(ServerSettings(log_level="ERROR"))
    serving = asyncio.ensure_future(echo.serve(new_registry()))
    await echo.started.wait()
    print(echo.state.port, flush=True)
    await serving

asyncio.run(main())
"""

_CLIENT = """
import asyncio, sys
from google.protobuf.wrappers_pb2 import StringValue
from services.kit.channel import connect
from tests.harness.kit_service import caller

async def main():
    async with connect(sys.argv[1]) as channel:
        call = caller(channel, "Stream", "unary_stream")(StringValue(value="a wait"))
        print((await call.read()).value, flush=True)
        await call.read()

asyncio.run(main())
"""


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(program: str, *arguments: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        with process:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ask_often(options: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The same options with a first question after one second of silence instead of ten."""
    return tuple((name, 1_000 if name == "grpc.keepalive_time_ms" else value) for name, value in options)


async def test_client_notices_a_silent_server(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "OPTIONS", ask_often(channel.OPTIONS))
    process = start(_SERVER)
    port = await asyncio.to_thread(said, process)
    async with channel.connect(f"127.0.0.1:{port}") as connected:
        call = caller(connected, "Stream", "unary_stream")(StringValue(value="a wait"))
        assert (await call.read()).value == "A"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call.read(), NOTICE_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_server_notices_a_silent_client(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_OPTIONS", ask_often(server._OPTIONS))
    echo = Echo(ServerSettings(drain_timeout_s=5))
    serving = asyncio.ensure_future(echo.serve(new_registry()))
    try:
        await echo.started.wait()
        assert echo.state is not None
        process = start(_CLIENT, f"127.0.0.1:{echo.state.port}")
        assert await asyncio.to_thread(said, process) == "A"
        process.send_signal(signal.SIGSTOP)
        await asyncio.wait_for(echo.cancelled.wait(), NOTICE_S)
    finally:
        echo.stop.set()
        await serving
