"""The bounded log of what the leader decided and why, kept in the registry so that any scheduler can explain it."""

import time
from collections.abc import Sequence

from services.kit.etcd import Leadership
from services.scheduler.plan import Change, Place, Remove
from services.scheduler.store import FleetStore

MAX_DECISIONS = 100


class DecisionLog:
    """Appends sentences per model, the newest last, at most MAX_DECISIONS; a sentence that repeats the newest one is not kept again."""

    def __init__(self, store: FleetStore) -> None:
        self._store = store

    async def append(self, model: str, sentences: Sequence[str], now_unix_ms: int, leadership: Leadership) -> None:
        """Adds the sentences under the leader's guard; raises EtcdError. A leader that is none any more writes nothing."""
        kept = await self._store.read_decisions(model)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_unix_ms / 1000))
        newest = kept[-1].partition(" ")[2] if kept else ""
        added = [f"{stamp} {sentence}" for sentence in sentences if sentence != newest]
        if added:
            await self._store.write_decisions(model, [*kept, *added][-MAX_DECISIONS:], leadership)


def describe(change: Change) -> str:
    """The change and its reason as one sentence."""
    assignment = change.assignment
    match change:
        case Place():
            did = "placed on"
        case Remove():
            did = "removed from"
        case _:
            did = "drains on"
    return f"{assignment.replica_id} {did} {assignment.node_id}: {change.why}"
