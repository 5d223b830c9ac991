"""One Envoy per test module; each test finds the gateway behind it as new."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import openai
import pytest
import pytest_asyncio

from tests.harness.edge import Edge, running_edge
from tests.harness.scripted_gateway import ScriptedGateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Edge]:
    async with running_edge(tmp_path_factory.mktemp("edge")) as running:
        yield running


@pytest.fixture
def gateway(edge: Edge) -> ScriptedGateway:
    edge.gateway.reset()
    return edge.gateway


@pytest_asyncio.fixture(loop_scope="module")
async def http(edge: Edge, gateway: ScriptedGateway) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=edge.url, timeout=20) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def client(edge: Edge, gateway: ScriptedGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key="key", max_retries=0, timeout=20) as made:
        yield made
