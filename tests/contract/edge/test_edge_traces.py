"""The edge's spans: part of the caller's trace, parent of the gateway's, and without a key or a query string."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from deploy.envoy.settings import TraceSettings
from tests.harness.edge import running_envoy
from tests.harness.otlp_collector import ERROR, UNSET, OtlpCollector
from tests.harness.scripted_gateway import ScriptedGateway

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
MARKER = "marker-of-a-secret"
CHAT = "/v1/chat/completions"


@dataclass
class Traced:
    """An edge whose spans a collector sees."""

    collector: OtlpCollector
    gateway: ScriptedGateway
    http: httpx2.AsyncClient


@pytest.fixture
async def traced(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Traced]:
    """The parameter is the share of requests that are sampled."""
    gateway = ScriptedGateway()
    await gateway.start()
    async with OtlpCollector() as collector:
        host, _, port = collector.endpoint.rpartition(":")
        traces = TraceSettings(host, int(port), sample_ratio=getattr(request, "param", 1.0))
        async with (
            running_envoy(tmp_path, gateway.port, traces=traces) as envoy,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{envoy.plain_port}", timeout=20) as http,
        ):
            yield Traced(collector, gateway, http)
    await gateway.kill()


async def sent_on(traced: Traced, **headers: str) -> str:
    """The trace context that the gateway got."""
    answer = await traced.http.post(CHAT, json={"model": "echo"}, headers=headers)
    return str(dict(answer.json()["metadata"])["traceparent"])


@pytest.mark.parametrize("traced", [0.0], indirect=True)
async def test_edge_continues_the_trace_of_its_caller_whatever_its_ratio(traced: Traced) -> None:
    context = await sent_on(traced, traceparent=f"00-{TRACE}-{PARENT}-01")
    (span,) = await traced.collector.until(lambda spans: len(spans) == 1)
    assert (span.service, span.trace_id, span.parent_id) == ("inferway-edge", TRACE, PARENT)
    assert context == f"00-{TRACE}-{span.span_id}-01"


@pytest.mark.parametrize("request_id", ["5b4ecf19-66a2-46ec-ac97-a3fbd8c0f5d6", "of-my-own-form"])
async def test_edge_begins_a_trace_whatever_the_request_id(traced: Traced, request_id: str) -> None:
    context = await sent_on(traced, **{"x-request-id": request_id})
    (span,) = await traced.collector.until(lambda spans: len(spans) == 1)
    assert (span.parent_id, context) == ("", f"00-{span.trace_id}-{span.span_id}-01")
    assert span.attributes["guid:x-request-id"] == request_id


@pytest.mark.parametrize("traced", [0.0], indirect=True)
async def test_edge_without_samples_tells_the_gateway_so(traced: Traced) -> None:
    assert (await sent_on(traced, **{"x-client-trace-id": "please"}))[-3:] == "-00"


async def test_edge_span_of_a_refusal_is_there_and_holds_no_secret(traced: Traced) -> None:
    answer = await traced.http.get(f"/nowhere?key={MARKER}", headers={"authorization": f"Bearer {MARKER}"})
    assert answer.status_code == 404
    await traced.http.post(
        f"{CHAT}?prompt={MARKER}", json={"model": "whole", "user": MARKER}, headers={"authorization": f"Bearer {MARKER}"}
    )
    refused, served = await traced.collector.until(lambda spans: len(spans) == 2)
    assert (refused.attributes["url.path"], refused.attributes["http.status_code"], refused.status) == ("/nowhere", "404", UNSET)
    assert (served.attributes["url.path"], served.attributes["http.status_code"]) == (CHAT, "200")
    assert [span.raw for span in (refused, served) if MARKER.encode() in span.raw] == []


async def test_edge_span_of_a_gateway_that_is_away_is_an_error(traced: Traced) -> None:
    await traced.gateway.kill()
    answer = await traced.http.post(CHAT, json={"model": "whole"})
    assert answer.status_code == 503
    (span,) = await traced.collector.until(lambda spans: len(spans) == 1)
    assert (span.attributes["http.status_code"], span.status) == ("503", ERROR)


async def test_edge_health_checks_are_no_requests(traced: Traced) -> None:
    assert (await traced.http.get("/healthz")).status_code == 200
    await sent_on(traced)
    (span,) = await traced.collector.until(lambda spans: len(spans) >= 1)
    assert span.attributes["url.path"] == CHAT
