"""Build Envoy's bootstrap configuration from EdgeSettings and the templates beside this file."""

from __future__ import annotations

import ipaddress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.envoy.replies import build_local_replies
from deploy.envoy.routes import build_routes
from deploy.envoy.settings import EdgeSettings, TraceSettings
from deploy.envoy.template import load_template, to_yaml

_HERE = Path(__file__).parent
_TRANSCODER = "envoy.filters.http.grpc_json_transcoder"


def render(settings: EdgeSettings) -> dict[str, Any]:
    """The bootstrap tree: a plain listener, a TLS listener when certificates are given, and one endpoint for each gateway."""
    values = {**asdict(settings.limits), **_process_values(settings)}
    tree: dict[str, Any] = load_template(_HERE / "edge.yaml", values)
    http = _http(settings, values)
    listeners = [_listener("plain", settings.plain_host, settings.plain_port, http)]
    if settings.tls is not None:
        tls = _listener("tls", settings.tls_host, settings.tls_port, http)
        files = {"certificate": str(settings.tls.certificate), "private_key": str(settings.tls.private_key)}
        tls["filter_chains"][0]["transport_socket"] = load_template(_HERE / "tls.yaml", files)
        listeners.append(tls)
    tree["static_resources"]["listeners"] = listeners
    if settings.traces is not None:
        tree["static_resources"]["clusters"].append(_traces(settings.traces)["cluster"])
    return tree


def render_yaml(settings: EdgeSettings) -> str:
    """`render` as text that Envoy reads with `-c`."""
    return to_yaml(render(settings))


def _process_values(settings: EdgeSettings) -> dict[str, Any]:
    return {
        "admin_host": settings.admin_host,
        "admin_port": settings.admin_port,
        "access_log": settings.access_log,
        "descriptor": str(settings.descriptor),
        "discovery": _discovery(*(host for host, _ in settings.gateways)),
        "endpoints": [
            {"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}} for host, port in settings.gateways
        ],
    }


def _http(settings: EdgeSettings, values: dict[str, Any]) -> dict[str, Any]:
    http: dict[str, Any] = load_template(_HERE / "http.yaml", values)
    routes = build_routes(load_template(_HERE / "routes.yaml", values))
    http["route_config"] = {"name": "edge", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}
    http["local_reply_config"] = build_local_replies(load_template(_HERE / "local_replies.yaml", values))
    if settings.traces is not None:
        http["tracing"] = _traces(settings.traces)["http"]
    if settings.jwt is not None:
        jwt = {
            "issuer": settings.jwt.issuer,
            "audiences": list(settings.jwt.audiences),
            "jwks": str(settings.jwt.jwks),
            "claim": settings.jwt.claim,
        }
        names = [one["name"] for one in http["http_filters"]]
        http["http_filters"].insert(names.index(_TRANSCODER), load_template(_HERE / "jwt.yaml", jwt))
    return http


def _traces(traces: TraceSettings) -> dict[str, Any]:
    values = {
        "host": traces.host,
        "port": traces.port,
        "per_million": round(traces.sample_ratio * 1_000_000),
        "discovery": _discovery(traces.host),
    }
    parts: dict[str, Any] = load_template(_HERE / "tracing.yaml", values)
    return parts


def _discovery(*hosts: str) -> str:
    return "STATIC" if all(_is_ip(host) for host in hosts) else "STRICT_DNS"


def _listener(name: str, host: str, port: int, http: dict[str, Any]) -> dict[str, Any]:
    listener: dict[str, Any] = load_template(_HERE / "listener.yaml", {"name": name, "host": host, "port": port, "http": http})
    return listener


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
