"""The public surface as Envoy routes: known paths with their one method go to the gateway, the rest is refused with a reason."""

from __future__ import annotations

from typing import Any

Route = dict[str, Any]


def build_routes(table: dict[str, Any]) -> list[Route]:
    """Expand the table of `routes.yaml`, most specific refusals first.

    For each REST path: gRPC content is a 404 (the REST face is not offered as gRPC), a compressed body 415, another method 405.
    """
    off = table["no_transcoding"]
    routes: list[Route] = []
    for rest in table["rest"]:
        match, method = rest["match"], rest["method"]
        routes.append(_refuse({**match, "headers": [_header("content-type", prefix="application/grpc")]}, 404, off))
        wrong_method = _refuse({**match, "headers": [_header(":method", negate=True, exact=method)]}, 405, off)
        wrong_method["response_headers_to_add"] = [{"header": {"key": "allow", "value": method}}]
        routes.append(wrong_method)
        compressed = [{"name": "content-encoding", "present_match": True}, _header("content-encoding", negate=True, exact="identity")]
        routes.append(_refuse({**match, "headers": compressed}, 415, off))
        routes.append({"match": match, "route": table["upstream"]})
    for service in table["grpc"]:
        grpc_only = {"prefix": service, "headers": [_header("content-type", prefix="application/grpc")]}
        routes.append({"match": grpc_only, "route": table["upstream"], "typed_per_filter_config": off})
    routes.append(_refuse({"prefix": "/"}, 404, off))
    return routes


def _header(name: str, *, negate: bool = False, **match: str) -> dict[str, Any]:
    return {"name": name, "string_match": match, "invert_match": negate}


def _refuse(match: dict[str, Any], status: int, off: dict[str, Any]) -> Route:
    # The body only gives the reply mapper something to replace: Envoy does not map an empty direct response.
    return {
        "match": match,
        "direct_response": {"status": status, "body": {"inline_string": "refused"}},
        "typed_per_filter_config": off,
    }
