"""Which processes make up a local mesh, what each one is told, and what each waits for."""

import os
from collections.abc import Mapping
from pathlib import Path

from deploy.local import binaries, broker, envoy, etcd
from deploy.local.broker import BrokerKind
from deploy.local.child_spec import ChildSpec
from deploy.local.clients import grpc_alive, grpc_health
from deploy.local.service_environ import service_environ
from deploy.local.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = {
    "scheduler": "services.scheduler",
    "metering": "services.metering",
    "router": "services.router",
    "gateway": "services.gateway",
    "node": "services.engine.node",
}
_NODE_GRACE_S = 20.0  # the node agent drains its replicas
_SERVICE_GRACE_S = 10.0


def specs(settings: Settings, kind: BrokerKind, environ: Mapping[str, str]) -> list[ChildSpec]:
    """Every child of the mesh. Services wait for etcd alone: all of them can do without the broker for a while, and it starts slowest."""
    children = [etcd.child(settings.home, settings.ports)]
    if broker_child := broker.child(kind, settings, environ):
        children.append(broker_child)
    children += [_service(name, settings) for name in MODULES]
    children.append(envoy.child(settings.home, settings.ports, after=frozenset({"gateway"})))
    return children


def mesh_environ(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """What every process of the mesh finds in its environment: the caller's, our settings, and where our code lies."""
    code = [str(REPOSITORY), str(REPOSITORY / "protos" / "gen")]
    path = os.pathsep.join([*code, *filter(None, [environ.get("PYTHONPATH")])])
    return {**environ, **settings.to_environ(), "PYTHONPATH": path}


def _service(name: str, settings: Settings) -> ChildSpec:
    listeners = settings.ports.listeners()
    grpc_port, metrics_port = listeners[f"{name}_grpc"], listeners[f"{name}_metrics"]
    return ChildSpec(
        name=name,
        argv=binaries.python_module(MODULES[name]),
        probe=grpc_health(grpc_port),
        environ=service_environ(name, settings),
        after=frozenset({etcd.NAME}),
        ports={"grpc": grpc_port, "metrics": metrics_port},
        grace_s=_NODE_GRACE_S if name == "node" else _SERVICE_GRACE_S,
        alive=grpc_alive(grpc_port),
    )
