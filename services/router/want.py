"""What gateways ask for and what they are told: plain values without wire types."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Want:
    """One attempt that looks for a replica. ``deadline_unix_ms`` 0 means the router's own bound only; an empty version means any."""

    want_id: str
    model: str
    prompt_tokens: int
    max_output_tokens: int
    model_version: str = ""
    tenant_id: str = ""
    deadline_unix_ms: int = 0
    excluded_replica_ids: frozenset[str] = field(default_factory=frozenset)
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class HeldGrant:
    """A grant that a gateway brings along from a router that went away."""

    want_id: str
    replica_id: str
    model: str


@dataclass(frozen=True, slots=True)
class Granted:
    """A want has its replica; ``queue_s`` is the time it waited."""

    want_id: str
    replica_id: str
    address: str
    model_version: str
    queue_s: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """A want gets none. ``reason`` is a name of the error catalogue; ``retry_after_s`` says when trying again makes sense."""

    want_id: str
    reason: str
    message: str
    retry_after_s: float


Answer = Granted | Rejected
