"""INFERWAY_OTLP_ENDPOINT: one request is one trace over the edge, the gateway and a replica, as the mesh of `inferway up` sends it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.harness import smollm
from tests.harness.mesh import MODEL, running_mesh
from tests.harness.otlp_collector import OtlpCollector

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROMPT = "marker of a secret prompt"


async def test_request_through_the_mesh_is_one_trace(tmp_path: Path) -> None:
    smollm.smollm()
    environ = {"INFERWAY_ENGINE_RUNNER": "sim", "INFERWAY_LOCAL_BROKER": "tansu", "INFERWAY_LOCAL_REPLICAS": "1"}
    async with OtlpCollector() as collector:
        with contextlib.ExitStack() as stack:
            starting = running_mesh(tmp_path / "home", smollm.HOME / "models", INFERWAY_OTLP_ENDPOINT=collector.endpoint, **environ)
            mesh = await asyncio.to_thread(stack.enter_context, starting)
            async with httpx.AsyncClient(timeout=30) as client:
                body = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 5}
                headers = {"authorization": f"Bearer {mesh.key}", "traceparent": f"00-{TRACE}-{PARENT}-01"}
                answer = await client.post(f"{mesh.base_url}/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == 200
            await collector.until(
                lambda spans: (
                    {span.service for span in spans if span.trace_id == TRACE} == {"inferway-edge", "inferway-gateway", "inferway-engine"}
                )
            )
            await asyncio.to_thread(stack.close)
        spans = {span.name: span for span in collector.spans if span.trace_id == TRACE}
        edge = next(span for span in spans.values() if span.service == "inferway-edge")
        call = spans["inferway.edge.v1.OpenAI/CreateChatCompletion"]
        assert (edge.parent_id, call.parent_id, spans["chat"].parent_id) == (PARENT, edge.span_id, call.span_id)
        assert (spans["attempt"].parent_id, spans["engine attempt"].parent_id) == (spans["chat"].span_id, spans["attempt"].span_id)
        assert not [span.name for span in collector.spans if PROMPT.encode() in span.raw or mesh.key.encode() in span.raw]
