"""A replica of the tiny model and a gateway that has said hello, for tests that want nothing special of either."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.engine import GatewayStub, Running, running_engine


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_engine(tmp_path) as running:
        yield running


@pytest.fixture
async def gateway(running: Running) -> GatewayStub:
    return await GatewayStub(running[1]).hello()
