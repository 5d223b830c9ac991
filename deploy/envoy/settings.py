"""What an operator may choose about the edge; everything else is fixed in the templates beside this file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the TLS listener."""

    certificate: Path
    private_key: Path


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """An identity provider whose tokens may stand in the Authorization header instead of an API key.

    A token that fails the check never reaches the claim header, so the gateway treats it as an unknown key (401).
    """

    issuer: str
    audiences: tuple[str, ...]
    jwks: Path
    claim: str = "sub"


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """An OTLP collector (gRPC without TLS) that gets the edge's spans, and the share of requests that have any."""

    host: str
    port: int
    sample_ratio: float = 0.05
    """From 0 to 1. A caller that brings a W3C context decides for itself."""


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Bounds of the edge. Durations in seconds, sizes in bytes."""

    max_body_bytes: int = 4 * 1024 * 1024
    """Largest REST request body; one byte more is a 413. The gateway must accept gRPC messages a little larger than this."""
    max_response_message_bytes: int = 16 * 1024 * 1024
    """Largest single message of a REST answer."""
    max_connections: int = 10_000
    max_heap_bytes: int = 1024 * 1024 * 1024
    """New requests are refused with 503 at 95 % of this."""
    max_streams: int = 2_000
    """Concurrent requests on all gateways together; more are refused with 503."""
    headers_s: float = 5.0
    receive_s: float = 60.0
    """Time to receive a whole request. A gRPC stream must have its response headers by then."""
    idle_s: float = 600.0
    """A stream on which nothing moves in either direction for this long is ended: it must exceed the worst time to first token."""
    stream_s: float = 7_200.0
    """Last resort against streams that never end; the gateway's own deadline comes first and says so to the client."""
    drain_s: float = 5.0
    connect_s: float = 0.5
    health_interval_s: float = 1.0


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """One edge process: where it listens, what it fronts and the files it reads. Port 0 lets the kernel choose."""

    descriptor: Path
    """FileDescriptorSet with `inferway.edge.v1.OpenAI` and its imports (see `descriptor.py`)."""
    gateways: tuple[tuple[str, int], ...]
    """One host and port per gateway process. Host names are resolved again while running; IP addresses are not."""
    plain_port: int
    plain_host: str = "127.0.0.1"
    tls: TlsFiles | None = None
    tls_host: str = "127.0.0.1"
    tls_port: int = 0
    admin_host: str = "127.0.0.1"
    admin_port: int = 0
    access_log: str = "/dev/stdout"
    jwt: JwtSettings | None = None
    traces: TraceSettings | None = None
    limits: EdgeLimits = field(default_factory=EdgeLimits)

    def __post_init__(self) -> None:
        if not self.gateways:
            raise ValueError("the edge needs at least one gateway address")
