"""Settings of the router, from INFERWAY_ROUTER_*."""

from __future__ import annotations

from dataclasses import dataclass

from services.kit.config import require
from services.router.admission import AdmissionLimits
from services.router.decision import Policy
from services.router.filters import FilterLimits, standard_filters
from services.router.scorers import parse_scorers

PREFIX = "INFERWAY_ROUTER_"


@dataclass(frozen=True)
class RouterConfig:
    """Times in seconds; addresses are host:port."""

    host: str = "127.0.0.1"
    port: int = 9120
    metrics_port: int | None = None
    reflection: bool = False
    log_level: str = "INFO"
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 0.05
    drain_timeout_s: float = 5.0
    etcd_endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    max_queue_length: int = 256
    """Wants that may wait per model; more are refused with QUEUE_FULL."""
    queue_timeout_s: float = 30.0
    no_replica_grace_s: float = 2.0
    """How long a want is held while every replica that could serve it is starting, lost or suspect."""
    scorers: tuple[str, ...] = ("queue=1.0", "kv_room=1.0")
    """name=weight of each scorer."""
    tie_margin: float = 0.01
    """Totals that differ by no more than this count as equal."""
    max_reserved_output_tokens: int = 256
    """KV room is reserved for the prompt and at most so much output."""
    max_load_age_s: float = 3.0
    """A replica whose engine was silent for longer gets no work."""
    max_heartbeat_age_s: float = 15.0
    """A replica whose step loop made no progress for longer gets no work."""
    suspect_hold_s: float = 0.5
    """How long after a loss reports of the same connection clear nothing."""
    unregistered_linger_s: float = 15.0
    """How long a replica that left the registry keeps serving while its connection works: time to register again."""

    def __post_init__(self) -> None:
        for name in ("max_queue_length",):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("queue_timeout_s", "max_load_age_s", "max_heartbeat_age_s"):
            require(getattr(self, name) > 0, f"{name} must be above 0")
        for name in ("no_replica_grace_s", "drain_timeout_s", "tie_margin", "suspect_hold_s", "unregistered_linger_s"):
            require(getattr(self, name) >= 0, f"{name} must not be negative")
        require(self.max_reserved_output_tokens >= 0, "max_reserved_output_tokens must not be negative")
        require(0 <= self.port <= 65535, "port must be between 0 and 65535")
        require(0 <= self.trace_sample_ratio <= 1, "trace_sample_ratio must be between 0 and 1")
        require(bool(self.etcd_endpoints), "etcd_endpoints must name at least one address")
        parse_scorers(self.scorers)

    def policy(self) -> Policy:
        """How decisions are made."""
        limits = FilterLimits(self.max_load_age_s, self.max_heartbeat_age_s, self.max_reserved_output_tokens)
        return Policy(standard_filters(limits), parse_scorers(self.scorers), self.tie_margin, self.max_reserved_output_tokens)

    def admission_limits(self) -> AdmissionLimits:
        """The bounds of waiting."""
        return AdmissionLimits(self.max_queue_length, self.queue_timeout_s, self.no_replica_grace_s)
