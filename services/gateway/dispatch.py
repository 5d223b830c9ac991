"""What the gateway asks of the router: a replica for each attempt, held until it says that it is done with it."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Want:
    """One attempt that looks for a replica. `prompt_tokens` includes delivered tokens; `deadline_unix_ms` is when to give up waiting."""

    want_id: str
    model: str
    model_version: str
    tenant_id: str
    prompt_tokens: int
    max_output_tokens: int
    deadline_unix_ms: int
    excluded_replica_ids: tuple[str, ...]
    request_id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A replica for one want; `address` is host:port of its engine."""

    want_id: str
    replica_id: str
    address: str
    model_version: str
    queue_ms: int


class GrantOutcome(Enum):
    """How a grant was used."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    REPLICA_LOST = "replica_lost"
    FAILED = "failed"


class Dispatcher(Protocol):
    """The router, or what stands for it."""

    async def admit(self, want: Want) -> Grant:
        """Waits for a replica. Whoever gets a grant owes `done`; a cancelled wait owes nothing.

        Raises what the router answered (QUEUE_FULL, QUEUE_TIMEOUT, NO_READY_REPLICA, ...), or ROUTER_UNAVAILABLE when it is away too long.
        """

    def first_token(self, want_id: str) -> None:
        """The first token of the grant arrived."""

    def done(self, want_id: str, outcome: GrantOutcome) -> None:
        """Gives the grant back. Idempotent."""
