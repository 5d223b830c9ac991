"""Which processes make up a local mesh, what each one is told, and what each waits for."""

from collections.abc import Mapping
from pathlib import Path

from deploy.local import binaries, broker, envoy, etcd
from deploy.local.broker import BrokerKind
from deploy.local.child_spec import ChildSpec
from deploy.local.clients import grpc_health
from deploy.local.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]


def specs(settings: Settings, kind: BrokerKind, environ: Mapping[str, str]) -> list[ChildSpec]:
    """Every child of the mesh, servers first."""
    broker_child = broker.child(kind, settings, environ)
    children = [etcd.child(settings.home, settings.ports)]
    if broker_child:
        children.append(broker_child)
    events = frozenset({broker_child.name}) if broker_child else frozenset[str]()
    registry = frozenset({etcd.NAME})
    for name, after in (
        ("scheduler", registry),
        ("metering", registry | events),
        ("router", registry),
        ("gateway", registry),
        ("node", registry),
    ):
        children.append(_service(name, settings, after))
    children.append(envoy.child(settings.home, settings.ports, after=frozenset({"gateway"})))
    return children


def _service(name: str, settings: Settings, after: frozenset[str]) -> ChildSpec:
    module = "services.engine.node" if name == "node" else f"services.{name}"
    listeners = settings.ports.listeners()
    grpc_port, metrics_port = listeners[f"{name}_grpc"], listeners[f"{name}_metrics"]
    return ChildSpec(
        name=name,
        argv=binaries.python_module(module),
        probe=grpc_health(grpc_port),
        environ=service_environ(name, settings),
        after=after,
        ports={"grpc": grpc_port, "metrics": metrics_port},
        grace_s=20.0 if name == "node" else 10.0,
    )


def service_environ(name: str, settings: Settings) -> dict[str, str]:
    """What one service is told beyond the mesh's common environment."""
    return {}
