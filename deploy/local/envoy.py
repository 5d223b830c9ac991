"""The edge: writes Envoy's configuration and names the process that serves it."""

from deploy.envoy.descriptor import write_descriptor
from deploy.envoy.render import render_yaml
from deploy.envoy.settings import EdgeSettings, TlsFiles, TraceSettings
from deploy.local import binaries, probes
from deploy.local.certs import EdgeCertificates
from deploy.local.child_spec import ChildSpec
from deploy.local.home import Home, write_atomically
from deploy.local.ports import PortPlan
from deploy.local.settings import Settings

NAME = "envoy"


def prepare(settings: Settings, certificates: EdgeCertificates) -> None:
    """Write the bootstrap file and the descriptor set that Envoy reads."""
    home, ports = settings.home, settings.ports
    host, _, port = settings.otlp_endpoint.rpartition(":")
    edge = EdgeSettings(
        descriptor=write_descriptor(home.run / "edge.binpb"),
        gateways=(("127.0.0.1", ports.gateway_grpc),),
        plain_port=ports.edge_http,
        tls=TlsFiles(certificate=certificates.server, private_key=certificates.server_key),
        tls_port=ports.edge_tls,
        admin_port=ports.envoy_admin,
        traces=TraceSettings(host, int(port), sample_ratio=1.0) if port else None,
    )
    write_atomically(home.envoy_config, render_yaml(edge).encode())


def child(home: Home, ports: PortPlan, after: frozenset[str]) -> ChildSpec:
    """Ready when its listeners are up. Hot restart is off: it would tie two meshes on one machine together through shared memory."""
    argv = (
        str(binaries.find("envoy")),
        "-c",
        str(home.envoy_config),
        "--concurrency",
        "1",
        "--log-level",
        "warning",
        "--disable-hot-restart",
    )
    return ChildSpec(
        name=NAME,
        argv=argv,
        probe=probes.http(ports.envoy_admin, "/ready"),
        after=after,
        ports={"http": ports.edge_http, "tls": ports.edge_tls, "admin": ports.envoy_admin},
        grace_s=5.0,
        alive=probes.http(ports.envoy_admin, "/ready"),
    )
