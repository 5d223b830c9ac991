"""What the rendered configuration says, and that Envoy itself accepts every form of it."""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.envoy.descriptor import write_descriptor
from deploy.envoy.render import render, render_yaml
from deploy.envoy.settings import EdgeLimits, EdgeSettings, JwtSettings, TlsFiles, TraceSettings
from deploy.local.certs import ensure
from tests.harness.edge import envoy_binary


def settings(**changes: Any) -> EdgeSettings:
    base: dict[str, Any] = {"descriptor": Path("edge.binpb"), "gateways": (("127.0.0.1", 7001),), "plain_port": 8080}
    return EdgeSettings(**{**base, **changes})


def http_of(tree: dict[str, Any], listener: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = tree["static_resources"]["listeners"][listener]["filter_chains"][0]["filters"][0]["typed_config"]
    return found


def filter_names(tree: dict[str, Any]) -> list[str]:
    return [one["name"].rsplit(".", 1)[-1] for one in http_of(tree)["http_filters"]]


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("jwt", [False, True])
@pytest.mark.parametrize("traces", [None, TraceSettings("127.0.0.1", 4317), TraceSettings("collector", 4317, sample_ratio=1.0)], ids=str)
@pytest.mark.parametrize("gateways", [(("127.0.0.1", 7001),), (("127.0.0.1", 7001), ("127.0.0.1", 7002)), (("gateway", 7001),)])
def test_render_every_form_is_accepted_by_envoy(
    tmp_path: Path, tls: bool, jwt: bool, traces: TraceSettings | None, gateways: tuple[tuple[str, int], ...]
) -> None:
    certificates = ensure(tmp_path, datetime.datetime.now(datetime.UTC))
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [{"kty": "oct", "kid": "1", "k": "c2VjcmV0", "alg": "HS256"}]}))
    config = tmp_path / "envoy.yaml"
    edge = settings(
        descriptor=write_descriptor(tmp_path / "edge.binpb"),
        gateways=gateways,
        tls=TlsFiles(certificates.server, certificates.server_key) if tls else None,
        jwt=JwtSettings("https://issuer.test", ("inferway",), jwks) if jwt else None,
        traces=traces,
        limits=EdgeLimits(idle_s=1.5),
    )
    config.write_text(render_yaml(edge))
    run = subprocess.run([envoy_binary(), "--mode", "validate", "-c", str(config)], capture_output=True, text=True, timeout=50, check=False)
    assert run.returncode == 0, run.stderr
    assert "eprecated" not in run.stderr


def test_render_yaml_round_trip_equals_the_tree() -> None:
    assert yaml.safe_load(render_yaml(settings())) == render(settings())


def test_render_listeners_share_one_http_definition() -> None:
    tree = render(settings(tls=TlsFiles(Path("a.pem"), Path("a.key")), tls_port=8443))
    plain, tls = tree["static_resources"]["listeners"]
    assert http_of(tree, 0) == http_of(tree, 1)
    assert "transport_socket" not in plain["filter_chains"][0]
    context = tls["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"]
    assert context["alpn_protocols"] == ["h2", "http/1.1"]
    assert context["tls_certificates"] == [{"certificate_chain": {"filename": "a.pem"}, "private_key": {"filename": "a.key"}}]


def test_render_defaults_bind_everything_to_loopback() -> None:
    tree = render(settings(tls=TlsFiles(Path("a.pem"), Path("a.key"))))
    sockets = [one["address"]["socket_address"] for one in [tree["admin"], *tree["static_resources"]["listeners"]]]
    assert {one["address"] for one in sockets} == {"127.0.0.1"}


def test_render_gateways_one_endpoint_each() -> None:
    cluster = render(settings(gateways=(("127.0.0.1", 7001), ("127.0.0.1", 7002))))["static_resources"]["clusters"][0]
    endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert [one["endpoint"]["address"]["socket_address"]["port_value"] for one in endpoints] == [7001, 7002]
    assert cluster["type"] == "STATIC"


def test_render_gateway_host_names_are_resolved_while_running() -> None:
    assert render(settings(gateways=(("gateway", 7001),)))["static_resources"]["clusters"][0]["type"] == "STRICT_DNS"


def test_settings_without_a_gateway_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one gateway"):
        settings(gateways=())


def test_render_traces_only_when_asked_for() -> None:
    without, traced = render(settings()), render(settings(traces=TraceSettings("127.0.0.1", 4317, sample_ratio=0.25)))
    assert "tracing" not in http_of(without)
    assert [cluster["name"] for cluster in without["static_resources"]["clusters"]] == ["gateway"]
    assert [cluster["name"] for cluster in traced["static_resources"]["clusters"]] == ["gateway", "otlp"]
    sampler = http_of(traced)["tracing"]["provider"]["typed_config"]["sampler"]["typed_config"]["wrapped_sampler"]["typed_config"]
    assert sampler["sampling_percentage"] == {"numerator": 250_000, "denominator": "MILLION"}


def test_render_jwt_filter_only_when_asked_for() -> None:
    assert "jwt_authn" not in filter_names(render(settings()))
    names = filter_names(render(settings(jwt=JwtSettings("https://issuer.test", ("inferway",), Path("jwks.json")))))
    assert names.index("jwt_authn") == names.index("grpc_json_transcoder") - 1


def test_render_error_filter_stands_before_the_transcoder() -> None:
    names = filter_names(render(settings()))
    assert names.index("lua") < names.index("grpc_json_transcoder") < names.index("router") == len(names) - 1


def test_render_values_cannot_change_the_structure() -> None:
    hostile = 'x"\nadmin: {address: {socket_address: {address: 0.0.0.0, port_value: 1}}}\n#'
    tree = yaml.safe_load(render_yaml(settings(access_log=hostile)))
    assert http_of(tree)["access_log"][0]["typed_config"]["path"] == hostile
    assert tree["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"


def test_render_limits_reach_the_tree() -> None:
    limits = EdgeLimits(max_body_bytes=11, max_connections=12, max_heap_bytes=13, max_streams=14, idle_s=1.5, stream_s=16, receive_s=17)
    tree = render(settings(limits=limits))
    http = http_of(tree)
    transcoder = next(one for one in http["http_filters"] if one["name"].endswith("transcoder"))["typed_config"]
    monitors = [one["typed_config"] for one in tree["overload_manager"]["resource_monitors"]]
    assert transcoder["max_request_body_size"] == 11
    assert (monitors[0]["max_active_downstream_connections"], monitors[1]["max_heap_size_bytes"]) == (12, 13)
    assert tree["static_resources"]["clusters"][0]["circuit_breakers"]["thresholds"][0]["max_requests"] == 14
    assert (http["stream_idle_timeout"], http["request_timeout"]) == ("1.5s", "17s")


def test_render_no_upstream_route_has_a_timeout() -> None:
    routes = http_of(render(settings()))["route_config"]["virtual_hosts"][0]["routes"]
    upstream = [one["route"] for one in routes if "route" in one]
    assert upstream
    assert {one["timeout"] for one in upstream} == {"0s"}
    assert {one["retry_policy"]["retry_on"] for one in upstream} == {"connect-failure,refused-stream"}


def test_render_access_log_names_no_secret_and_no_query() -> None:
    log = http_of(render(settings()))["access_log"][0]["typed_config"]["log_format"]["json_format"]
    written = " ".join(log.values()).lower()
    assert "authorization" not in written
    assert "%path(nq:" in written
    assert "req(:path" not in written
