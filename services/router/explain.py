"""Shows a decision with all its numbers, made by the same code that admits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.router.decision import Decision, Outlook, Policy, Verdict, decide
from services.router.snapshot import Snapshot
from services.router.want import Want


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "why this replica": one verdict per known replica of the model; ``reason`` is empty when one is picked."""

    verdicts: tuple[Verdict, ...]
    picked_replica_id: str
    queue_position: int
    reason: str


def explain(snapshot: Snapshot, waiting: Sequence[Want], want: Want, policy: Policy) -> Explanation:
    """What would become of ``want`` behind the wants that wait. Pure."""
    claimed: set[str] = set()
    for earlier in waiting:
        claimed |= decide(snapshot, earlier, policy, claimed).contended
    decision = decide(snapshot, want, policy, claimed)
    if decision.picked is not None:
        return Explanation(decision.verdicts, decision.picked.facts.replica_id, len(waiting), "")
    return Explanation(decision.verdicts, "", len(waiting), f"{decision.outlook.value}: {describe(decision)}")


def describe(decision: Decision) -> str:
    """Why nothing was picked, in words: how many replicas each filter excludes."""
    if not decision.verdicts:
        return "none is registered" if decision.outlook is Outlook.NO_REPLICA else "the registry has not been read yet"
    counts: dict[str, int] = {}
    for verdict in decision.verdicts:
        counts[verdict.excluded_by] = counts.get(verdict.excluded_by, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
