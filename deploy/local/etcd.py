"""The registry: one etcd member on the loopback interface with its data below INFERWAY_HOME."""

from deploy.local import binaries, probes
from deploy.local.child_spec import ChildSpec
from deploy.local.home import Home
from deploy.local.ports import PortPlan

NAME = "etcd"
_QUOTA_BYTES = 512 * 1024 * 1024


def child(home: Home, ports: PortPlan) -> ChildSpec:
    """Ready when /health says so; data survives kill -9."""
    client, peer = f"http://127.0.0.1:{ports.etcd_client}", f"http://127.0.0.1:{ports.etcd_peer}"
    argv = (
        str(binaries.find("etcd")),
        "--name=local",
        f"--data-dir={home.etcd / 'data'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        f"--quota-backend-bytes={_QUOTA_BYTES}",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",
        "--logger=zap",
        "--log-level=warn",
    )
    return ChildSpec(
        name=NAME,
        argv=argv,
        probe=probes.http(ports.etcd_client, "/health", b'"health":"true"'),
        ports={"client": ports.etcd_client, "peer": ports.etcd_peer},
        grace_s=5.0,
        alive=probes.http(ports.etcd_client, "/version"),
    )
