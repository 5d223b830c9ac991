"""The replicas as this router sees them: registry, connections, loads and own grants in one place."""

from __future__ import annotations

from collections.abc import Callable

from services.kit.clock import Clock
from services.router.grants import Grant, GrantLedger
from services.router.replica_record import ReplicaRecord
from services.router.snapshot import Load, ReplicaFacts, ReplicaSnapshot, Snapshot


class ReplicaView:
    """Facts in, snapshots out. Subscribers are told the model whenever something about its replicas changed.

    A connection that breaks takes the replica out at once, whatever the registry says; the registry alone never takes out a replica
    whose connection works (the caller of ``remove`` decides how long an unregistered one may stay).
    """

    def __init__(self, ledger: GrantLedger, clock: Clock, *, suspect_hold_s: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._suspect_hold_s = suspect_hold_s
        self._models: dict[str, dict[str, ReplicaRecord]] = {}
        self._records: dict[str, ReplicaRecord] = {}
        self._subscribers: list[Callable[[str | None], None]] = []
        self._num_tenures = 0
        self._num_picks = 0
        self._complete = False

    @property
    def complete(self) -> bool:
        """True once the registry has been read in full."""
        return self._complete

    def subscribe(self, callback: Callable[[str | None], None]) -> None:
        """Calls ``callback`` after every change with the model that it concerns; None is every model, known or not."""
        self._subscribers.append(callback)

    def mark_complete(self) -> None:
        """The registry has been read in full: a model without replicas has none."""
        self._complete = True
        self._notify(None)

    def register(self, facts: ReplicaFacts) -> None:
        """Takes the registry's word. Another incarnation, address or model is another process: nothing of the old one is kept."""
        record = self._records.get(facts.replica_id)
        if record is not None and _is_same_process(record.facts, facts):
            record.facts = facts
        else:
            self._forget(facts.replica_id)
            fresh = ReplicaRecord(facts)
            self._records[facts.replica_id] = fresh
            self._models.setdefault(facts.model, {})[facts.replica_id] = fresh
        self._notify(facts.model)
        if record is not None and record.facts.model != facts.model:
            self._notify(record.facts.model)

    def remove(self, replica_id: str) -> None:
        """Forgets a replica; unknown ids are ignored."""
        record = self._forget(replica_id)
        if record is not None:
            self._notify(record.facts.model)

    def connect(self, replica_id: str) -> None:
        """The router's connection to the replica works from now on."""
        if (record := self._records.get(replica_id)) is not None:
            self._num_tenures += 1
            record.connect(self._num_tenures)
            self._notify(record.facts.model)

    def disconnect(self, replica_id: str) -> None:
        """The router's connection to the replica is gone."""
        if (record := self._records.get(replica_id)) is not None and record.connected:
            record.disconnect()
            self._notify(record.facts.model)

    def report(self, replica_id: str, load: Load) -> None:
        """Takes the engine's word on its load."""
        if (record := self._records.get(replica_id)) is not None:
            record.report(load, self._clock.monotonic(), self._ledger, self._suspect_hold_s)
            self._notify(record.facts.model)

    def recount(self, replica_id: str) -> None:
        """Grants on the replica were adopted: has the engine's last word account for them."""
        if (record := self._records.get(replica_id)) is not None:
            record.recount(self._ledger)

    def suspect(self, grant: Grant) -> None:
        """A gateway lost the replica of this grant: avoid it until something fresh is heard. Old processes' grants change nothing."""
        record = self._records.get(grant.replica_id)
        if record is not None and grant.incarnation in ("", record.facts.incarnation):
            record.suspect_since = self._clock.monotonic()
            self._notify(record.facts.model)

    def note_pick(self, replica_id: str) -> None:
        """Remembers that the replica was picked just now, so that equals take turns."""
        if (record := self._records.get(replica_id)) is not None:
            self._num_picks += 1
            record.last_pick = self._num_picks

    def facts_of(self, replica_id: str) -> ReplicaFacts | None:
        """The registry's last word on a replica."""
        record = self._records.get(replica_id)
        return record.facts if record is not None else None

    def tenure_of(self, replica_id: str) -> int:
        """Number of the current connection; -1 when the replica is unknown or was never connected."""
        record = self._records.get(replica_id)
        return record.tenure if record is not None else -1

    def models(self) -> list[str]:
        """Models with at least one known replica, sorted."""
        return sorted(self._models)

    def snapshot(self, model: str) -> Snapshot:
        """The immutable picture of one model now."""
        now = self._clock.monotonic()
        records = self._models.get(model, {})
        return Snapshot(model, tuple(records[replica_id].snapshot(now, self._ledger) for replica_id in sorted(records)), self._complete)

    def replicas(self, model: str = "") -> list[ReplicaSnapshot]:
        """All replicas of a model, or of every model, by model and id."""
        return [replica for name in self.models() if model in ("", name) for replica in self.snapshot(name).replicas]

    def _forget(self, replica_id: str) -> ReplicaRecord | None:
        record = self._records.pop(replica_id, None)
        if record is not None:
            of_model = self._models[record.facts.model]
            del of_model[replica_id]
            if not of_model:
                del self._models[record.facts.model]
        return record

    def _notify(self, model: str | None) -> None:
        for callback in self._subscribers:
            callback(model)


def _is_same_process(before: ReplicaFacts, after: ReplicaFacts) -> bool:
    return (before.incarnation, before.address, before.model, before.model_version) == (
        after.incarnation,
        after.address,
        after.model,
        after.model_version,
    )
