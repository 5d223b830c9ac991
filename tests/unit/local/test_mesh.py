"""Every process of the mesh is told only what it knows, and two meshes share nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from deploy.local.broker import BrokerKind
from deploy.local.child_spec import levels
from deploy.local.mesh import MODULES, mesh_environ, specs
from deploy.local.service_environ import service_environ
from deploy.local.settings import Settings
from services.engine.node.config import NodeConfig
from services.gateway.config import GatewayConfig
from services.kit.config import load
from services.metering.config import MeteringConfig
from services.router.config import RouterConfig
from services.scheduler.config import SchedulerConfig

CONFIGS = {
    "gateway": GatewayConfig,
    "metering": MeteringConfig,
    "node": NodeConfig,
    "router": RouterConfig,
    "scheduler": SchedulerConfig,
}


def settings(home: Path, base: int = 20000, otlp_endpoint: str = "") -> Settings:
    environ = {"INFERWAY_HOME": str(home), "INFERWAY_PORT_BASE": str(base), "INFERWAY_LOCAL_BROKER": "tansu"}
    return Settings.from_environ({**environ, "INFERWAY_OTLP_ENDPOINT": otlp_endpoint})


@pytest.mark.parametrize("name", MODULES)
def test_service_environ_is_understood_by_the_service_and_complete(name: str, tmp_path: Path) -> None:
    config = load(CONFIGS[name], f"INFERWAY_{name.upper()}_", service_environ(name, settings(tmp_path)))

    told = dataclasses.asdict(config)
    assert told["etcd_endpoints"] == ("127.0.0.1:20060",)
    assert told.get("home", str(tmp_path)) == str(tmp_path)
    assert "127.0.0.1:20062" in told.get("kafka_bootstrap", "127.0.0.1:20062")


@pytest.mark.parametrize("name", MODULES)
def test_service_environ_sends_every_trace_to_the_collector_that_is_given(name: str, tmp_path: Path) -> None:
    told = load(CONFIGS[name], f"INFERWAY_{name.upper()}_", service_environ(name, settings(tmp_path, otlp_endpoint="127.0.0.1:4317")))
    values = dataclasses.asdict(told)
    assert (values["otlp_endpoint"], values["trace_sample_ratio"]) == ("127.0.0.1:4317", 1.0)


def test_specs_start_servers_first_and_the_edge_behind_its_gateway(tmp_path: Path) -> None:
    order = levels(specs(settings(tmp_path), BrokerKind.TANSU, {}))

    assert [sorted(one.name for one in level) for level in order] == [["etcd", "tansu"], sorted(MODULES), ["envoy"]]


def test_specs_of_an_existing_cluster_start_no_broker(tmp_path: Path) -> None:
    names = [one.name for one in specs(settings(tmp_path), BrokerKind.EXTERNAL, {})]

    assert names == ["etcd", *MODULES, "envoy"]


def test_specs_of_two_meshes_share_no_port_and_no_path(tmp_path: Path) -> None:
    def ports_and_paths(home: Path, base: int) -> set[str]:
        children = specs(settings(home, base), BrokerKind.TANSU, {})
        return {str(port) for one in children for port in one.ports.values()} | {
            value for one in children for value in one.environ.values()
        }

    shared = ports_and_paths(tmp_path / "one", 20000) & ports_and_paths(tmp_path / "two", 21000)

    assert shared == {"local"}  # the node's name, within each registry


def test_mesh_environ_reaches_our_code_from_anywhere_and_keeps_the_callers(tmp_path: Path) -> None:
    environ = mesh_environ(settings(tmp_path), {"PATH": "/bin", "PYTHONPATH": "/theirs"})

    assert environ["PATH"] == "/bin"
    assert environ["PYTHONPATH"].endswith("/theirs")
    assert Settings.from_environ(environ) == settings(tmp_path)
