"""Settings of the scheduler, from INFERWAY_SCHEDULER_*."""

import os
import socket
from dataclasses import dataclass, field

from services.kit.config import require

PREFIX = "INFERWAY_SCHEDULER_"


def _default_scheduler_id() -> str:
    return f"scheduler-{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True)
class SchedulerConfig:
    """Times in seconds; addresses are host:port."""

    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int | None = None
    reflection: bool = False
    log_level: str = "INFO"
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 0.05
    scheduler_id: str = field(default_factory=_default_scheduler_id)
    etcd_endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    etcd_timeout_s: float = 2.0
    leader_ttl_s: int = 10
    """How long the other schedulers wait for a leader that died."""
    node_grace_s: float = 30.0
    """How long a node may be absent before its replicas are placed elsewhere."""
    resync_s: float = 5.0
    """Longest pause between two rounds of the leader."""
    default_drain_timeout_s: int = 30
    drain_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("etcd_timeout_s", "resync_s"):
            require(getattr(self, name) > 0, f"{name} must be above 0")
        for name in ("leader_ttl_s", "default_drain_timeout_s"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("node_grace_s", "drain_timeout_s"):
            require(getattr(self, name) >= 0, f"{name} must not be negative")
        require(0 <= self.port <= 65535, "port must be between 0 and 65535")
        require(0 <= self.trace_sample_ratio <= 1, "trace_sample_ratio must be between 0 and 1")
        require(bool(self.scheduler_id), "scheduler_id must not be empty")
        require(bool(self.etcd_endpoints), "etcd_endpoints must name at least one address")
