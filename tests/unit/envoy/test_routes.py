"""The route table against requests, with Envoy's first-match rule played by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import deploy.envoy.routes
from deploy.envoy.replies import build_local_replies
from deploy.envoy.routes import build_routes
from deploy.envoy.template import load_template

HERE = Path(deploy.envoy.routes.__file__).parent
ROUTES = build_routes(load_template(HERE / "routes.yaml", {"stream_s": 1}))
JSON, GRPC = {"content-type": "application/json"}, {"content-type": "application/grpc"}


def holds(matcher: dict[str, Any], headers: dict[str, str]) -> bool:
    value = headers.get(matcher["name"])
    if "present_match" in matcher:
        return value is not None
    if value is None:
        return False
    test = matcher["string_match"]
    hit = value == test["exact"] if "exact" in test else value.startswith(test["prefix"])
    return hit != matcher["invert_match"]


def outcome(method: str, path: str, headers: dict[str, str]) -> int | str:
    seen = {":method": method, **headers}
    for route in ROUTES:
        match = route["match"]
        on_path = path == match["path"] if "path" in match else path.startswith(match["prefix"])
        if on_path and all(holds(one, seen) for one in match.get("headers", [])):
            status = route.get("direct_response", {}).get("status")
            return "gateway" if status is None else int(status)
    raise AssertionError("no route")


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("POST", "/v1/chat/completions", JSON, "gateway"),
        ("GET", "/v1/models", {}, "gateway"),
        ("GET", "/v1/models/org/name", {}, "gateway"),
        ("GET", "/v1/chat/completions", {}, 405),
        ("DELETE", "/v1/models/a", {}, 405),
        ("POST", "/v1/chat/completions", {**JSON, "content-encoding": "gzip"}, 415),
        ("POST", "/v1/chat/completions", {**JSON, "content-encoding": "identity"}, "gateway"),
        ("POST", "/v1/chat/completions", GRPC, 404),
        ("POST", "/inferway.edge.v1.Inference/Generate", GRPC, "gateway"),
        ("POST", "/inferway.edge.v1.Admin/CreateKey", GRPC, "gateway"),
        ("POST", "/inferway.edge.v1.Inference/Generate", JSON, 404),
        ("POST", "/inferway.edge.v1.OpenAI/CreateChatCompletion", GRPC, 404),
        ("POST", "/grpc.health.v1.Health/Check", GRPC, 404),
        ("POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", GRPC, 404),
        ("POST", "/inferway.router.v1.Router/Dispatch", GRPC, 404),
        ("GET", "/", {}, 404),
        ("GET", "/V1/models", {}, 404),
    ],
)
def test_routes_first_match_decides(method: str, path: str, headers: dict[str, str], expected: int | str) -> None:
    assert outcome(method, path, headers) == expected


def test_routes_wrong_method_names_the_right_one() -> None:
    allowed = {
        route["match"].get("path", route["match"].get("prefix")): route["response_headers_to_add"][0]["header"]["value"]
        for route in ROUTES
        if route.get("direct_response", {}).get("status") == 405
    }
    assert allowed["/v1/chat/completions"] == "POST"
    assert allowed["/v1/models"] == allowed["/v1/models/"] == "GET"


def test_local_replies_every_status_from_400_has_an_openai_and_a_grpc_form() -> None:
    mappers = build_local_replies(load_template(HERE / "local_replies.yaml", {}))["mappers"]
    grpc_forms, rest_forms = mappers[0::2], mappers[1::2]
    assert all("and_filter" in one["filter"] for one in grpc_forms)
    for status in range(400, 600):
        assert any(covers(one["filter"]["status_code_filter"], status) for one in rest_forms)
    for one in rest_forms:
        assert set(one["body_format_override"]["json_format"]["error"]) == {"message", "type", "param", "code"}


def covers(status_filter: dict[str, Any], status: int) -> bool:
    comparison = status_filter["comparison"]
    bound: int = comparison["value"]["default_value"]
    return status >= bound if comparison["op"] == "GE" else status == bound
