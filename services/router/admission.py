"""Admission: wants wait in bounded queues, first come first served, until a replica has room; every want is answered exactly once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from services.kit.clock import Clock
from services.router.decision import Decision, Outlook, Policy, decide
from services.router.explain import Explanation, describe, explain
from services.router.gateway_stream import GatewayStream
from services.router.grants import ADOPTED_TENURE, Grant, GrantLedger
from services.router.queues import Queues, Waiting
from services.router.replica_view import ReplicaView
from services.router.reservation import blocks_needed
from services.router.snapshot import ReplicaSnapshot
from services.router.want import Granted, HeldGrant, Rejected, Want

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Bounds of waiting; times in seconds."""

    max_queue_length: int
    queue_timeout_s: float
    no_replica_grace_s: float


class Observer(Protocol):
    """Who is told what admission does; metrics in production."""

    def granted(self, model: str, waited_s: float) -> None:
        """A want got a replica after this time."""

    def rejected(self, model: str, reason: str) -> None:
        """A want got none."""

    def queue_depth(self, model: str, num_waiting: int) -> None:
        """So many wants of the model wait now."""

    def first_token(self, model: str, since_want_s: float) -> None:
        """The first token of a grant arrived, counted from the arrival of its want."""


class Alarm(Protocol):
    """Calls ``Admission.expire`` when the time has come."""

    def set(self, when: float | None) -> None:
        """Replaces the moment (monotonic seconds); None switches it off."""


class Admission:
    """Event-driven: wants, ends of grants, changes of replicas and due times each lead to one pass over the queue they concern.

    Order: a want that only lacks room claims the replicas it waits for, so a later want never overtakes it there; wants for other
    versions or with other exclusions pass by. Nothing here awaits, so every call leaves all figures consistent.
    """

    def __init__(
        self,
        view: ReplicaView,
        ledger: GrantLedger,
        policy: Policy,
        limits: AdmissionLimits,
        clock: Clock,
        alarm: Alarm,
        observer: Observer,
    ) -> None:
        self._view = view
        self._ledger = ledger
        self._policy = policy
        self._limits = limits
        self._clock = clock
        self._alarm = alarm
        self._observer = observer
        self._queues = Queues()
        self._last_wait_s: dict[str, float] = {}

    def adopt(self, held: Sequence[HeldGrant], stream: GatewayStream) -> None:
        """Counts the grants that a gateway brings along; grants that are known already only change their stream."""
        for grant in held:
            if self._ledger.transfer(grant.want_id, stream.stream_id) is None:
                facts = self._view.facts_of(grant.replica_id)
                incarnation = facts.incarnation if facts is not None else ""
                adopted = Grant(grant.want_id, stream.stream_id, grant.model, grant.replica_id, incarnation, ADOPTED_TENURE)
                self._ledger.add(replace(adopted, wanted_at=self._now()))
                self._view.recount(grant.replica_id)

    def offer(self, want: Want, stream: GatewayStream) -> None:
        """Takes a want; its answer is pushed to the stream now or later. A want that is known already moves to this stream."""
        if self._take_over(want.want_id, stream):
            return
        now = self._now()
        deadline = now + _patience_s(want, self._clock.unix_ms(), self._limits.queue_timeout_s)
        waiting = Waiting(want, stream, now, deadline)
        if deadline <= now:
            self._answer_reject(waiting, "QUEUE_TIMEOUT", "the deadline had passed when the request reached the queue")
        elif self._queues.depth(want.model) >= self._limits.max_queue_length:
            self._answer_reject(waiting, "QUEUE_FULL", f"{self._limits.max_queue_length} requests wait for model {want.model} already")
        else:
            self._queues.add(waiting)
            self.pump(want.model)
            self._observer.queue_depth(want.model, self._queues.depth(want.model))

    def first_token(self, want_id: str) -> None:
        """The first token of a grant arrived."""
        if (grant := self._ledger.get(want_id)) is not None:
            self._observer.first_token(grant.model, self._now() - grant.wanted_at)

    def done(self, want_id: str, stream: GatewayStream, *, replica_lost: bool) -> None:
        """A grant is used up, or a waiting want is not wanted any more. Unknown ids and other streams' ids are ignored."""
        waiting = self._queues.get(want_id)
        if waiting is not None and waiting.stream is stream:
            self._take_out(waiting)
            self.pump(waiting.want.model)
            return
        grant = self._ledger.release(want_id, stream.stream_id)
        if grant is None:
            return
        if replica_lost:
            self._view.suspect(grant)
        self.pump(grant.model)

    def release(self, stream: GatewayStream) -> None:
        """The stream broke: its wants are forgotten and its grants released."""
        models = {grant.model for grant in self._ledger.release_owner(stream.stream_id)}
        for waiting in self._queues.of_stream(stream):
            self._take_out(waiting)
            models.add(waiting.want.model)
        for model in sorted(models):
            self.pump(model)

    def on_change(self, model: str | None) -> None:
        """Something about the replicas of a model changed; None is every model."""
        for name in self._queues.models() if model is None else [model]:
            self.pump(name)

    def pump(self, model: str) -> None:
        """One pass over a model's queue: grants what has room, holds or refuses what has no replica."""
        claimed: set[str] = set()
        for waiting in self._queues.of_model(model):
            decision = decide(self._view.snapshot(model), waiting.want, self._policy, claimed)
            self._act(waiting, decision)
            claimed |= decision.contended if decision.outlook is Outlook.NO_ROOM else frozenset()
            if decision.blocks_all_later:
                break
        self._alarm.set(self._queues.next_due())

    def expire(self) -> None:
        """Looks at the wants whose time has come: refuses them, or gives them more time if a replica works again."""
        now = self._now()
        models = set()
        for waiting in self._queues.pop_due(now):
            models.add(waiting.want.model)
            if now >= waiting.deadline:
                self._reject(waiting, "QUEUE_TIMEOUT", f"no replica of model {waiting.want.model} had room before the deadline")
            else:
                self._expire_hold(waiting)
        for model in sorted(models):
            self.pump(model)
        self._alarm.set(self._queues.next_due())

    def explain(self, want: Want) -> Explanation:
        """What ``want`` would meet at the end of the queue now. Changes nothing."""
        return explain(self._view.snapshot(want.model), [waiting.want for waiting in self._queues.of_model(want.model)], want, self._policy)

    def _act(self, waiting: Waiting, decision: Decision) -> None:
        match decision.outlook:
            case Outlook.PICKED:
                assert decision.picked is not None
                self._grant(waiting, decision.picked)
            case Outlook.NO_ROOM:
                self._unhold(waiting)
            case Outlook.NO_REPLICA_NOW:
                self._hold(waiting)
            case Outlook.NO_REPLICA:
                self._reject_without_replica(waiting, decision)

    def _grant(self, waiting: Waiting, replica: ReplicaSnapshot) -> None:
        want, facts, now = waiting.want, replica.facts, self._now()
        self._take_out(waiting)
        grant = Grant(
            want_id=want.want_id,
            owner=waiting.stream.stream_id,
            model=want.model,
            replica_id=facts.replica_id,
            incarnation=facts.incarnation,
            tenure=self._view.tenure_of(facts.replica_id),
            num_blocks=blocks_needed(want, facts.block_size, self._policy.max_reserved_output_tokens),
            address=facts.address,
            model_version=facts.model_version,
            wanted_at=waiting.arrived_at,
            granted_at=now,
        )
        self._ledger.add(grant)
        self._view.note_pick(facts.replica_id)
        self._last_wait_s[want.model] = now - waiting.arrived_at
        self._observer.granted(want.model, now - waiting.arrived_at)
        _log.debug("granted", extra={"fields": {**_log_fields(want), "replica": facts.replica_id}})
        waiting.stream.push(_granted(grant))

    def _hold(self, waiting: Waiting) -> None:
        if waiting.held_since is None:
            waiting.held_since = self._now()
            self._queues.look_at(waiting, min(waiting.deadline, waiting.held_since + self._limits.no_replica_grace_s))

    def _unhold(self, waiting: Waiting) -> None:
        if waiting.held_since is not None:
            waiting.held_since = None
            self._queues.look_at(waiting, waiting.deadline)

    def _expire_hold(self, waiting: Waiting) -> None:
        decision = decide(self._view.snapshot(waiting.want.model), waiting.want, self._policy)
        if decision.outlook in (Outlook.NO_REPLICA_NOW, Outlook.NO_REPLICA):
            self._reject_without_replica(waiting, decision)
        else:
            self._unhold(waiting)

    def _reject_without_replica(self, waiting: Waiting, decision: Decision) -> None:
        self._reject(waiting, "NO_READY_REPLICA", f"no replica of model {waiting.want.model} is ready: {describe(decision)}")

    def _reject(self, waiting: Waiting, reason: str, message: str) -> None:
        self._take_out(waiting)
        self._answer_reject(waiting, reason, message)

    def _answer_reject(self, waiting: Waiting, reason: str, message: str) -> None:
        model = waiting.want.model
        retry_after_s = min(30.0, max(1.0, self._last_wait_s.get(model, 1.0)))
        self._observer.rejected(model, reason)
        _log.debug("rejected", extra={"fields": {**_log_fields(waiting.want), "reason": reason}})
        waiting.stream.push(Rejected(waiting.want.want_id, reason, message, retry_after_s))

    def _take_out(self, waiting: Waiting) -> None:
        self._queues.remove(waiting)
        self._observer.queue_depth(waiting.want.model, self._queues.depth(waiting.want.model))

    def _take_over(self, want_id: str, stream: GatewayStream) -> bool:
        """True when the want is known: a gateway that reconnected asks again and must not get a second replica for it."""
        waiting = self._queues.get(want_id)
        if waiting is not None:
            waiting.stream = stream
            return True
        known = self._ledger.get(want_id)
        if known is None:
            return False
        if known.owner != stream.stream_id and known.tenure != ADOPTED_TENURE:
            moved = self._ledger.transfer(want_id, stream.stream_id)
            assert moved is not None
            stream.push(_granted(moved))
        return True

    def _now(self) -> float:
        return self._clock.monotonic()


def _patience_s(want: Want, unix_ms: int, bound_s: float) -> float:
    """How long the want may wait: until its deadline, and never beyond the router's own bound."""
    return min(bound_s, (want.deadline_unix_ms - unix_ms) / 1000) if want.deadline_unix_ms else bound_s


def _log_fields(want: Want) -> dict[str, str]:
    return {"request": want.request_id, "want": want.want_id, "tenant": want.tenant_id, "model": want.model}


def _granted(grant: Grant) -> Granted:
    return Granted(grant.want_id, grant.replica_id, grant.address, grant.model_version, max(0.0, grant.granted_at - grant.wanted_at))
