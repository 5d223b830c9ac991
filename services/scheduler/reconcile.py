"""The leader's loop: read the fleet, plan, write under guard, wait for the next change. Level-triggered: a lost event costs only time."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from dataclasses import replace

from services.kit.clock import Clock
from services.kit.etcd import Election, EtcdError, Leadership
from services.scheduler.decisions import DecisionLog, describe
from services.scheduler.fleet import Fleet
from services.scheduler.lost_nodes import LostNodes
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.placement import make_plan
from services.scheduler.plan import Plan
from services.scheduler.store import FleetStore

log = logging.getLogger(__name__)

_SETTLE_S = 0.05
_RETRY_S = 0.5
_RESIGN_TIMEOUT_S = 2.0


class Reconciler:
    """Leads when elected and makes the fleet what the deployments want. `run` is its only task."""

    def __init__(
        self, store: FleetStore, election: Election, clock: Clock, metrics: SchedulerMetrics, *, node_grace_s: float, resync_s: float
    ) -> None:
        self._store = store
        self._election = election
        self._clock = clock
        self._metrics = metrics
        self._lost = LostNodes(node_grace_s)
        self._decisions = DecisionLog(store)
        self._told: dict[str, str] = {}
        self._resync_s = resync_s
        self._dirty = asyncio.Event()

    async def run(self) -> None:
        """Campaigns and leads, in turn, until cancelled; gives the leadership up on the way out."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store.follow(self._dirty.set))
            while True:
                leadership = await self._election.campaign()
                log.info("leads", extra={"fields": {"token": leadership.token}})
                try:
                    await self._lead(leadership)
                finally:
                    self._metrics.forget()
                    await _resign(leadership)
                log.warning("leads no more")

    async def round(self, leadership: Leadership) -> bool:
        """One reading, one plan, its changes. False when a guard refused one: the basis has changed. Raises EtcdError."""
        fleet = await self._store.read()
        fleet = replace(fleet, lost=self._lost.observe(fleet.absent, self._clock.monotonic()))
        plan = make_plan(fleet, self._clock.unix_ms())
        self._metrics.observe(fleet, plan)
        complete = await self._carry_out(plan, leadership)
        await self._tell_problems(fleet, plan, leadership)
        return complete

    async def _lead(self, leadership: Leadership) -> None:
        self._lost.forget()
        self._told.clear()
        self._metrics.leading.set(1)
        while not leadership.lost.is_set():
            self._dirty.clear()
            pause_s = self._resync_s
            try:
                if not await self.round(leadership):
                    pause_s = _RETRY_S
            except EtcdError as error:
                self._lost.forget()
                self._metrics.failed_rounds.inc()
                log.warning("round failed, the registry does not answer", extra={"fields": {"error": error.message}})
                pause_s = _RETRY_S
            await self._wait(pause_s, leadership)

    async def _wait(self, pause_s: float, leadership: Leadership) -> None:
        """Until something changes, at most `pause_s`; then a moment more, so that a burst of changes costs one round."""
        signs = [asyncio.ensure_future(event.wait()) for event in (self._dirty, leadership.lost)]
        try:
            await asyncio.wait(signs, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for sign in signs:
                sign.cancel()
        await asyncio.sleep(_SETTLE_S)

    async def _carry_out(self, plan: Plan, leadership: Leadership) -> bool:
        sentences: dict[str, list[str]] = defaultdict(list)
        complete = True
        try:
            for change in plan.changes:
                if not await self._store.apply(change, leadership):
                    complete = False
                    break
                sentence = describe(change)
                sentences[change.assignment.model].append(sentence)
                self._metrics.count(change)
                log.info("changed an assignment", extra={"fields": {"decision": sentence}})
        finally:
            for model, made in sentences.items():
                await self._decisions.append(model, made, self._clock.unix_ms(), leadership)
        return complete

    async def _tell_problems(self, fleet: Fleet, plan: Plan, leadership: Leadership) -> None:
        """A problem is logged when it appears, changes or goes, not in every round."""
        for model in sorted(fleet.deployments):
            problem = plan.problems.get(model, "")
            if problem == self._told.get(model, ""):
                continue
            self._told[model] = problem
            log.warning("placement problem changed", extra={"fields": {"model": model, "problem": problem}})
            sentence = f"problem: {problem}" if problem else "problem solved: every replica has a place"
            await self._decisions.append(model, [sentence], self._clock.unix_ms(), leadership)


async def _resign(leadership: Leadership) -> None:
    with contextlib.suppress(EtcdError, TimeoutError):
        async with asyncio.timeout(_RESIGN_TIMEOUT_S):
            await leadership.resign()
