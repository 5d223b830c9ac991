"""Settings of the gateway, from INFERWAY_GATEWAY_*."""

import os
import secrets
import socket
from dataclasses import dataclass, field

from services.kit.config import require

PREFIX = "INFERWAY_GATEWAY_"


def _default_gateway_id() -> str:
    """Containers may share host name and process id; two gateways of one id would take each other's place at the router for ever."""
    return f"gateway-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class GatewayConfig:
    """Times in seconds, sizes in bytes; addresses are host:port."""

    home: str = ".inferway"
    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int | None = None
    reflection: bool = False
    log_level: str = "INFO"
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 0.05
    gateway_id: str = field(default_factory=_default_gateway_id)
    etcd_endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    router_address: str = "127.0.0.1:9120"
    kafka_bootstrap: tuple[str, ...] = ("127.0.0.1:9092",)
    bootstrap_admin_key_file: str | None = None
    """File that holds an operator's key; its record is created in etcd when it is not there."""
    max_body_bytes: int = 4 * 1024 * 1024
    max_num_requests: int = 1024
    """Requests that are in work at the same time; more are refused with 429."""
    request_deadline_s: float = 600.0
    max_num_attempts: int = 3
    router_away_s: float = 5.0
    """How long requests wait for a router that cannot be reached before they fail with 503."""
    engine_connect_timeout_s: float = 2.0
    cancel_timeout_s: float = 2.0
    """How long a cancelled request waits for the engine's final count."""
    drain_timeout_s: float = 30.0
    num_tokenizer_threads: int = 2
    usage_topic: str = "usage.requests.v1"
    usage_outbox_max_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_num_requests", "max_num_attempts", "num_tokenizer_threads", "usage_outbox_max_bytes"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("request_deadline_s", "router_away_s", "engine_connect_timeout_s", "cancel_timeout_s"):
            require(getattr(self, name) > 0, f"{name} must be above 0")
        require(self.drain_timeout_s >= 0, "drain_timeout_s must not be negative")
        require(0 <= self.port <= 65535, "port must be between 0 and 65535")
        require(0 <= self.trace_sample_ratio <= 1, "trace_sample_ratio must be between 0 and 1")
        require(bool(self.gateway_id), "gateway_id must not be empty")
        require(bool(self.etcd_endpoints), "etcd_endpoints must name at least one address")
