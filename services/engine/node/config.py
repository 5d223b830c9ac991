"""Settings of the node agent, from INFERWAY_NODE_*."""

import re
import socket
import sys
from dataclasses import dataclass, field

from services.kit.config import require

PREFIX = "INFERWAY_NODE_"


def _default_node_id() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._")[:100] or "node"


def _default_replica_command() -> tuple[str, ...]:
    return (sys.executable, "-m", "services.engine")


@dataclass(frozen=True)
class NodeConfig:
    """Times in seconds, sizes in bytes; addresses are host:port. The home is shared with the replicas of this node."""

    home: str = ".inferway"
    host: str = "127.0.0.1"
    """Where the agent and its replicas listen."""
    advertised_host: str = ""
    """Host under which others reach them; empty means `host`."""
    port: int = 0
    metrics_port: int | None = None
    log_level: str = "INFO"
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 0.05
    node_id: str = field(default_factory=_default_node_id)
    etcd_endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    etcd_timeout_s: float = 2.0
    lease_ttl_s: int = 10
    kafka_bootstrap: str = "127.0.0.1:9092"
    failure_domain: str = ""
    max_num_replicas: int = 0
    """Most replicas of this node; 0 means one per CUDA device, or 4 without one."""
    replica_port_first: int = 9300
    replica_port_last: int = 9399
    """Each replica takes two ports of this range."""
    replica_command: tuple[str, ...] = field(default_factory=_default_replica_command)
    """Program and arguments of a replica, comma separated."""
    replica_ready_timeout_s: float = 300.0
    """A replica that is not SERVING so long after its start is started again."""
    replica_unhealthy_timeout_s: float = 10.0
    """A replica that was SERVING and is not for so long is killed and started again."""
    health_interval_s: float = 1.0
    health_timeout_s: float = 1.0
    replica_kill_grace_s: float = 6.0
    """Time between the end of a drain and SIGKILL."""
    log_max_bytes: int = 16 * 1024 * 1024
    drain_timeout_s: float = 15.0
    """What the replicas may take when the agent itself is stopped."""

    def __post_init__(self) -> None:
        for name in (
            "etcd_timeout_s",
            "replica_ready_timeout_s",
            "replica_unhealthy_timeout_s",
            "health_interval_s",
            "health_timeout_s",
        ):
            require(getattr(self, name) > 0, f"{name} must be above 0")
        for name in ("max_num_replicas", "replica_kill_grace_s", "drain_timeout_s"):
            require(getattr(self, name) >= 0, f"{name} must not be negative")
        require(self.lease_ttl_s >= 1, "lease_ttl_s must be at least 1")
        require(self.log_max_bytes >= 4096, "log_max_bytes must be at least 4096")
        require(0 <= self.port <= 65535, "port must be between 0 and 65535")
        require(0 <= self.trace_sample_ratio <= 1, "trace_sample_ratio must be between 0 and 1")
        require(1024 <= self.replica_port_first < self.replica_port_last <= 65535, "replica ports must be a range within 1024-65535")
        require(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.node_id) is not None, "node_id must be 1-100 of [A-Za-z0-9._-]")
        require(bool(self.replica_command), "replica_command must name a program")
        require(bool(self.etcd_endpoints), "etcd_endpoints must name at least one address")

    @property
    def reachable_host(self) -> str:
        """Host under which others reach this node."""
        return self.advertised_host or self.host
