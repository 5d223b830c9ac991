"""What compose.yaml promises: settings that the services know, networks as the call graph, hardened containers, one start order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import deploy.compose
from deploy.compose.config import PREFIX as PREPARE_PREFIX
from deploy.compose.config import PrepareConfig
from deploy.local.ports import PortPlan
from services.engine.config import PREFIX as ENGINE_PREFIX
from services.engine.config import EngineConfig
from services.engine.node.config import PREFIX as NODE_PREFIX
from services.engine.node.config import NodeConfig
from services.gateway.config import PREFIX as GATEWAY_PREFIX
from services.gateway.config import GatewayConfig
from services.kit import config
from services.metering.config import MeteringConfig
from services.router.config import PREFIX as ROUTER_PREFIX
from services.router.config import RouterConfig
from services.scheduler.config import PREFIX as SCHEDULER_PREFIX
from services.scheduler.config import SchedulerConfig

DIRECTORY = Path(deploy.compose.__file__).parent
FILE = yaml.safe_load((DIRECTORY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
LONG_RUNNING = ["scheduler", "metering", "router", "engine-node", "gateway", "envoy", "etcd", "kafka"]
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def environment(service: str, *files: str) -> dict[str, str]:
    """The service's variables with every default filled in."""
    merged = dict(SERVICES[service].get("environment", {}))
    for file in files:
        merged.update(yaml.safe_load((DIRECTORY / file).read_text())["services"][service]["environment"])
    return {name: DEFAULT.sub(r"\1", value) for name, value in merged.items()}


@pytest.mark.parametrize(
    ("service", "cls", "prefix"),
    [
        ("gateway", GatewayConfig, GATEWAY_PREFIX),
        ("router", RouterConfig, ROUTER_PREFIX),
        ("scheduler", SchedulerConfig, SCHEDULER_PREFIX),
        ("metering", MeteringConfig, "INFERWAY_METERING_"),
        ("engine-node", NodeConfig, NODE_PREFIX),
        ("bootstrap", PrepareConfig, PREPARE_PREFIX),
    ],
)
def test_settings_are_those_of_the_service(service: str, cls: type[Any], prefix: str) -> None:
    loaded = config.load(cls, prefix, environment(service))
    if service != "bootstrap":
        assert loaded.etcd_endpoints == ("etcd:2379",)
        port = re.search(r":(\d+)$", SERVICES[service]["healthcheck"]["test"][-1])
        assert port is not None
        assert loaded.port == int(port[1])


@pytest.mark.parametrize("files", [(), ("compose.gpu.yaml",)])
def test_settings_that_replicas_inherit_are_those_of_the_engine(files: tuple[str, ...]) -> None:
    inherited = {**environment("engine-node", *files), f"{ENGINE_PREFIX}MODEL": "any"}
    loaded = config.load(EngineConfig, ENGINE_PREFIX, inherited)
    assert loaded.device == ("cuda" if files else "cpu")


def talks(one: str, other: str) -> bool:
    return bool(set(SERVICES[one].get("networks", [])) & set(SERVICES[other].get("networks", [])))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("envoy", "gateway", True),
        ("gateway", "router", True),
        ("gateway", "engine-node", True),
        ("gateway", "metering", True),
        ("router", "engine-node", True),
        ("gateway", "kafka", True),
        ("engine-node", "kafka", True),
        ("metering", "kafka", True),
        *[(service, "etcd", True) for service in ("gateway", "router", "scheduler", "metering", "engine-node", "bootstrap")],
        *[("envoy", other, False) for other in ("router", "engine-node", "scheduler", "metering", "etcd", "kafka")],
        *[("scheduler", other, False) for other in ("kafka", "envoy")],
        ("router", "kafka", False),
        ("etcd", "kafka", False),
    ],
)
def test_networks_follow_the_call_graph(one: str, other: str, expected: bool) -> None:
    assert talks(one, other) is expected


def test_networks_of_state_and_requests_have_no_way_out() -> None:
    inner = {name for name, network in FILE["networks"].items() if network.get("internal")}
    assert inner == {"edge", "mesh", "state", "events"}


def test_ports_are_published_on_loopback_where_the_command_looks_for_them() -> None:
    plan = PortPlan.from_base(8600)
    published = [DEFAULT.sub(r"\1", port) for service in SERVICES.values() for port in service.get("ports", [])]
    assert sorted(published) == sorted(
        [
            f"127.0.0.1:{plan.edge_http}:8080",
            f"127.0.0.1:{plan.edge_tls}:8443",
            f"127.0.0.1:{plan.gateway_grpc}:8080",
            f"127.0.0.1:{plan.router_grpc}:9120",
            f"127.0.0.1:{plan.scheduler_grpc}:9130",
            f"127.0.0.1:{plan.metering_grpc}:9140",
        ]
    )


@pytest.mark.parametrize("service", LONG_RUNNING)
def test_containers_are_hardened_and_watched(service: str) -> None:
    found = SERVICES[service]
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found["restart"] == "unless-stopped"
    assert found["healthcheck"]["test"][0] == "CMD"
    assert found["logging"]["options"]["max-size"]


def test_start_order_waits_for_health_or_completion() -> None:
    for service in SERVICES.values():
        for name, wanted in service.get("depends_on", {}).items():
            one_off = SERVICES[name]["restart"] == "no"
            assert wanted == {"condition": "service_completed_successfully" if one_off else "service_healthy"}


def test_file_is_valid_for_the_old_and_the_new_compose() -> None:
    assert not {"name", "include", "version"} & set(FILE)


def test_example_shows_every_variable_with_its_default() -> None:
    text = (DIRECTORY / "compose.yaml").read_text() + (DIRECTORY / "compose.gpu.yaml").read_text()
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    example = dict(line.removeprefix("#").split("=", 1) for line in (DIRECTORY / ".env.example").read_text().splitlines() if "=" in line)
    assert example == used
