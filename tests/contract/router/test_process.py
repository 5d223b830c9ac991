"""The router as a process: start-up errors and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import grpc
import pytest

from tests.contract.router.conftest import Mesh
from tests.harness.ports import free_port
from tests.harness.router_service import DispatchClient


async def start(**settings: str) -> asyncio.subprocess.Process:
    environ = {**os.environ, "PYTHONPATH": ".:protos/gen", **{f"INFERWAY_ROUTER_{name.upper()}": value for name, value in settings.items()}}
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "services.router", env=environ, stderr=asyncio.subprocess.PIPE)


def kill(process: asyncio.subprocess.Process) -> None:
    """Ends what a failed test left behind."""
    if process.returncode is None:
        process.kill()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scorers": "queue=1.0,luck=1.0"}, "unknown scorer 'luck'; known are kv_room, queue"),
        ({"max_queue_length": "many"}, "INFERWAY_ROUTER_MAX_QUEUE_LENGTH: must be a whole number"),
        ({"max_queue_len": "1"}, "INFERWAY_ROUTER_MAX_QUEUE_LEN: unknown setting"),
    ],
)
async def test_process_bad_setting_is_a_start_up_error(settings: dict[str, str], message: str) -> None:
    process = await start(**settings)
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode not in (0, None)
    assert message in errors.decode()


async def test_process_serves_and_sigterm_sends_gateways_away(mesh: Mesh) -> None:
    port = free_port()
    engine = await mesh.engine("a")
    process = await start(port=str(port), metrics_port="0", etcd_endpoints=mesh.etcd.endpoint)
    mesh.stack.callback(kill, process)
    gateway = DispatchClient(f"127.0.0.1:{port}")
    mesh.stack.push_async_callback(gateway.close)
    await asyncio.wait_for(gateway.channel.channel_ready(), 30)
    await gateway.open()
    await gateway.want()
    assert (await gateway.grant()).address == engine.address
    process.send_signal(signal.SIGTERM)
    assert (await gateway.end()).code() is grpc.StatusCode.UNAVAILABLE
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, errors.decode()
