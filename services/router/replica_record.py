"""What this router knows about one replica, and how the engine's word and the router's own grants become one figure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from services.router.grants import GrantLedger
from services.router.snapshot import Load, ReplicaFacts, ReplicaSnapshot


@dataclass(slots=True)
class ReplicaRecord:
    """Mutable record of one incarnation of a replica; times are monotonic seconds.

    Reconciliation: at each report of the engine everything beyond the grants of the current connection (``tenure``) is *foreign*: other
    routers' work, grants from before a reconnect, adopted grants. Until the next report the load is own grants plus foreign, so a grant
    or its end counts at once, and every report corrects what was wrong.
    """

    facts: ReplicaFacts
    connected: bool = False
    tenure: int = -1
    load: Load = field(default_factory=Load)
    reported_at: float = -math.inf
    num_foreign_sequences: int = 0
    num_foreign_blocks: int = 0
    suspect_since: float | None = None
    last_pick: int = 0

    def connect(self, tenure: int) -> None:
        """A new connection: nothing from before it counts."""
        self.connected = True
        self.tenure = tenure
        self.suspect_since = None

    def disconnect(self) -> None:
        """The connection is gone, and with it the engine's word."""
        self.connected = False
        self.load = Load()
        self.reported_at = -math.inf
        self.num_foreign_sequences = self.num_foreign_blocks = 0

    def report(self, load: Load, now: float, ledger: GrantLedger, suspect_hold_s: float) -> None:
        """Takes the engine's word. A report within ``suspect_hold_s`` of a loss may have been sent before it and clears nothing."""
        own = ledger.usage(self.facts.replica_id, self.facts.incarnation, self.tenure)
        self.load = load
        self.reported_at = now
        self.num_foreign_sequences = max(0, load.num_sequences - own.num_grants)
        self.num_foreign_blocks = max(0, load.num_used_blocks - own.num_blocks)
        if self.suspect_since is not None and now - self.suspect_since >= suspect_hold_s:
            self.suspect_since = None

    def recount(self, ledger: GrantLedger) -> None:
        """Grants of this connection became adopted ones: what they take is foreign until the next report."""
        own = ledger.usage(self.facts.replica_id, self.facts.incarnation, self.tenure)
        self.num_foreign_sequences = max(self.num_foreign_sequences, self.load.num_sequences - own.num_grants)
        self.num_foreign_blocks = max(self.num_foreign_blocks, self.load.num_used_blocks - own.num_blocks)

    def snapshot(self, now: float, ledger: GrantLedger) -> ReplicaSnapshot:
        """The immutable picture at ``now``."""
        facts = self.facts
        own = ledger.usage(facts.replica_id, facts.incarnation, self.tenure)
        return ReplicaSnapshot(
            facts=facts,
            connected=self.connected,
            load=self.load,
            load_age_s=now - self.reported_at,
            is_suspect=self.suspect_since is not None,
            num_granted=ledger.num_open(facts.replica_id, facts.incarnation),
            num_in_flight=own.num_grants + self.num_foreign_sequences,
            num_taken_blocks=own.num_blocks + self.num_foreign_blocks,
            last_pick=self.last_pick,
        )
