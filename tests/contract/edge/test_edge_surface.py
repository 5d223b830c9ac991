"""Only the public API is public, identity cannot be forged, and every answer carries a request id that is safe to log."""

from __future__ import annotations

import ipaddress
import json
import re

import httpx2
import pytest

from tests.harness.edge import Edge, raw_exchange, until
from tests.harness.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="module")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CLOSED = [
    *["/", "/health", "/metrics", "/docs", "/openapi.json", "/tokenize", "/invocations", "/admin", "/config_dump", "/clusters"],
    *["/quitquitquit", "/debug/pprof", "//v1/models", "/V1/models", "/v1/../admin", "/v1/%2e%2e/admin", "/v1/models;x", "/v1", "/v1/"],
    *["/v1//models", "/v1/models%2Fx", "/v1/completions/x", "/healthz/x", "/inferway.edge.v1.Inference/Generate", "/ready", "/stats"],
]


async def raw_get(edge: Edge, path: str, *headers: bytes) -> tuple[int, dict[str, str], bytes]:
    """A GET whose path and headers no client library has tidied."""
    lines = b"".join(line + b"\r\n" for line in (b"host: x", b"connection: close", *headers))
    answer = await raw_exchange(edge.plain_port, b"GET %s HTTP/1.1\r\n%s\r\n" % (path.encode(), lines))
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    return int(status.split()[1]), dict(field.split(": ", 1) for field in fields), body


async def echo(http: httpx2.AsyncClient, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The metadata the gateway saw."""
    answer = await http.post("/v1/chat/completions", json={"model": "echo"}, headers=headers)
    assert answer.status_code == 200
    return [(key, value) for key, value in answer.json()["metadata"]]


@pytest.mark.parametrize("path", CLOSED)
async def test_paths_outside_the_api_are_404_and_reach_no_gateway(edge: Edge, gateway: ScriptedGateway, path: str) -> None:
    status, headers, body = await raw_get(edge, path)
    assert status == 404
    assert headers["content-type"] == "application/json"
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert gateway.paths == []


async def test_models_with_a_trailing_slash_is_the_gateways_decision(edge: Edge, gateway: ScriptedGateway) -> None:
    await raw_get(edge, "/v1/models/")
    assert gateway.paths == ["/inferway.edge.v1.OpenAI/ListModels"]


async def test_health_answers_without_a_key_and_says_nothing_else(edge: Edge, gateway: ScriptedGateway) -> None:
    status, _, body = await raw_get(edge, "/healthz")
    assert (status, body) == (200, b"")
    assert gateway.paths == []


FORGED = [
    "x-tenant",
    "x-tenant-id",
    "x-inferway-tenant",
    "x-inferway-fresh-id",
    "x-jwt-subject",
    "x-jwt-anything",
    "x-envoy-original-path",
    "x-envoy-upstream-rq-timeout-ms",
    "x-envoy-retry-on",
    "x-forwarded-host",
    "x-forwarded-user",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "forwarded",
    "x-openai-error",
    "x-http-status",
    "x_tenant",
]


@pytest.mark.parametrize("name", FORGED)
async def test_forged_header_never_reaches_the_gateway(http: httpx2.AsyncClient, name: str) -> None:
    seen = await echo(http, [(name, "forged"), ("authorization", "Bearer key")])
    assert ("authorization", "Bearer key") in seen
    assert [pair for pair in seen if "forged" in pair[1]] == []


async def test_forwarded_for_is_one_address_and_never_what_a_client_says(http: httpx2.AsyncClient) -> None:
    forged = "203.0.113.9"
    seen = dict(await echo(http, [("x-forwarded-for", forged), ("x-forwarded-proto", "https")]))
    assert str(ipaddress.ip_address(seen["x-forwarded-for"])) != forged
    assert seen["x-forwarded-proto"] == "http"


async def test_two_authorization_headers_arrive_as_something_no_key_equals(http: httpx2.AsyncClient) -> None:
    seen = await echo(http, [("authorization", "Bearer one"), ("authorization", "Bearer two")])
    assert [value for key, value in seen if key == "authorization"] in (["Bearer one,Bearer two"], ["Bearer one", "Bearer two"])


async def test_trace_context_passes(http: httpx2.AsyncClient) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert ("traceparent", parent) in await echo(http, [("traceparent", parent)])


@pytest.mark.parametrize("given", ["same", "a1b2-c3_d4.e5:f6", "5b4ecf19-66a2-46ec-ac97-a3fbd8c0f5d6", "x" * 128])
async def test_sane_request_id_is_kept_everywhere(http: httpx2.AsyncClient, given: str) -> None:
    answer = await http.post("/v1/chat/completions", json={"model": "echo"}, headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == given
    assert ["x-request-id", given] in answer.json()["metadata"]


@pytest.mark.parametrize("given", [b"", b"x" * 129, b"a b", b'a"b', b"{}", b"\xc3\xa9", b"a,b", b"a\tb", b"<script>", b"a/../b"])
async def test_illegal_request_id_is_replaced(edge: Edge, gateway: ScriptedGateway, given: bytes) -> None:
    status, headers, _ = await raw_get(edge, "/v1/models", b"x-request-id: " + given)
    assert status == 200
    assert UUID.fullmatch(headers["x-request-id"])


async def test_two_request_ids_are_replaced_by_one(http: httpx2.AsyncClient) -> None:
    seen = await echo(http, [("x-request-id", "one"), ("x-request-id", "two")])
    (only,) = [value for key, value in seen if key == "x-request-id"]
    assert UUID.fullmatch(only)


async def test_giant_request_id_is_refused(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/v1/models", headers={"x-request-id": "x" * 1_000_000})).status_code in (400, 431)


@pytest.mark.parametrize("path", ["/v1/models", "/nowhere", "/healthz", "/v1/chat/completions"])
async def test_request_id_is_in_every_answer_and_always_another(http: httpx2.AsyncClient, path: str) -> None:
    ids = [(await http.get(path)).headers["x-request-id"] for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(UUID.fullmatch(one) for one in ids)


async def test_answers_do_not_tell_what_is_behind_the_edge(http: httpx2.AsyncClient) -> None:
    chat = await http.post("/v1/chat/completions", json={"model": "echo"})
    for answer in (chat, await http.get("/v1/models"), await http.get("/nothing")):
        assert [name for name in answer.headers if "envoy" in name or "grpc" in name] == []
        assert answer.headers["server"] == "inferway"


async def test_access_log_has_the_request_id_and_neither_query_nor_key(edge: Edge, http: httpx2.AsyncClient) -> None:
    headers = {"x-request-id": "logged-1", "authorization": "Bearer not-for-logs"}
    await http.get("/v1/models?secret=not-for-logs", headers=headers)

    async def written() -> bool:
        return edge.access_log.exists() and "logged-1" in edge.access_log.read_text()

    await until(written)
    text = edge.access_log.read_text()
    (record,) = [json.loads(line) for line in text.splitlines() if "logged-1" in line]
    assert (record["path"], record["code"], record["method"]) == ("/v1/models", 200, "GET")
    assert "not-for-logs" not in text
