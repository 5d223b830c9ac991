"""Follows the registry's replicas and keeps one connection to each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from inferway.common.v1 import registry_pb2
from services.kit.registry import Change, PrefixView
from services.router.clients.replica_watch import ReplicaWatch
from services.router.replica_view import ReplicaView
from services.router.snapshot import ReplicaFacts, ReplicaState

_log = logging.getLogger(__name__)

_STATES = {
    registry_pb2.REPLICA_STATE_STARTING: ReplicaState.STARTING,
    registry_pb2.REPLICA_STATE_READY: ReplicaState.READY,
    registry_pb2.REPLICA_STATE_DRAINING: ReplicaState.DRAINING,
}
_STATES_TO_PROTO = {state: value for value, state in _STATES.items()}


@dataclass(slots=True)
class _Member:
    facts: ReplicaFacts
    watch: ReplicaWatch
    task: asyncio.Task[None]
    leaving: asyncio.Task[None] | None = None

    def stop(self) -> None:
        self.task.cancel()
        if self.leaving is not None:
            self.leaving.cancel()


class ReplicaRegistry:
    """Turns changes of ``replicas/`` into facts of the view and into connections, each owned by one task.

    A replica whose key vanished (its lease ended, or etcd lost its data) keeps serving while its connection works, for at most
    ``linger_s``: a live replica registers again within that time, a dead one has no connection.
    """

    def __init__(self, source: PrefixView[registry_pb2.Replica], view: ReplicaView, *, linger_s: float, max_silence_s: float) -> None:
        self._source = source
        self._view = view
        self._linger_s = linger_s
        self._max_silence_s = max_silence_s
        self._members: dict[str, _Member] = {}

    async def run(self) -> None:
        """Follows until cancelled; outages of the registry change nothing."""
        async with asyncio.TaskGroup() as tasks:
            unsubscribe = self._source.subscribe(lambda change: self._on_change(change, tasks))
            try:
                tasks.create_task(self._source.run())
                await self._source.wait_ready()
                self._view.mark_complete()
                await asyncio.Event().wait()
            finally:
                unsubscribe()

    def _on_change(self, change: Change[registry_pb2.Replica], tasks: asyncio.TaskGroup) -> None:
        if change.after is not None:
            self._upsert(facts_from_proto(change.after), tasks)
        elif change.before is not None:
            self._leave(facts_from_proto(change.before), tasks)

    def _upsert(self, facts: ReplicaFacts, tasks: asyncio.TaskGroup) -> None:
        member = self._members.get(facts.replica_id)
        self._view.register(facts)
        if member is not None and _process(member.facts) == _process(facts):
            member.facts = facts
            member.watch.hurry()
            if member.leaving is not None:
                member.leaving.cancel()
                member.leaving = None
            return
        if member is not None:
            member.stop()
        watch = ReplicaWatch(facts, self._view, self._max_silence_s)
        self._members[facts.replica_id] = _Member(facts, watch, tasks.create_task(watch.run()))
        _log.info("replica registered", extra={"fields": {"replica": facts.replica_id, "model": facts.model, "state": facts.state.value}})

    def _leave(self, facts: ReplicaFacts, tasks: asyncio.TaskGroup) -> None:
        member = self._members.get(facts.replica_id)
        if member is not None and member.leaving is None and _process(member.facts) == _process(facts):
            member.leaving = tasks.create_task(self._linger(member))

    async def _linger(self, member: _Member) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger_s):
                await member.watch.broken.wait()
        del self._members[member.facts.replica_id]
        member.task.cancel()
        self._view.remove(member.facts.replica_id)
        _log.info("replica left", extra={"fields": {"replica": member.facts.replica_id, "model": member.facts.model}})


def facts_from_proto(replica: registry_pb2.Replica) -> ReplicaFacts:
    """The registry's word without wire types."""
    return ReplicaFacts(
        replica_id=replica.replica_id,
        model=replica.model,
        model_version=replica.model_version,
        address=replica.address,
        incarnation=replica.incarnation,
        state=_STATES.get(replica.state, ReplicaState.UNKNOWN),
        block_size=replica.block_size,
        num_blocks=replica.num_blocks,
        max_num_sequences=replica.max_num_sequences,
        max_context_tokens=replica.max_context_tokens,
        node_id=replica.node_id,
        metrics_address=replica.metrics_address,
        ready_unix_ms=replica.ready_unix_ms,
        runner=replica.runner,
    )


def facts_to_proto(facts: ReplicaFacts) -> registry_pb2.Replica:
    """The registry's word as it was."""
    return registry_pb2.Replica(
        replica_id=facts.replica_id,
        model=facts.model,
        model_version=facts.model_version,
        address=facts.address,
        metrics_address=facts.metrics_address,
        node_id=facts.node_id,
        state=_STATES_TO_PROTO.get(facts.state, registry_pb2.REPLICA_STATE_UNSPECIFIED),
        block_size=facts.block_size,
        num_blocks=facts.num_blocks,
        max_num_sequences=facts.max_num_sequences,
        max_context_tokens=facts.max_context_tokens,
        incarnation=facts.incarnation,
        ready_unix_ms=facts.ready_unix_ms,
        runner=facts.runner,
    )


def _process(facts: ReplicaFacts) -> tuple[str, str, str, str]:
    return facts.model, facts.model_version, facts.address, facts.incarnation
