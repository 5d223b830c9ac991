"""One replica slot: makes its order true by starting, watching, draining and starting again one replica process."""

import logging
from asyncio import Event, TaskGroup
from collections.abc import Callable
from dataclasses import dataclass, replace

from services.engine.node.backoff import Backoff
from services.engine.node.launcher import Launcher, LaunchError, ProcessEnd, ReplicaClient, ReplicaProcess
from services.engine.node.order import Order, Phase, SlotStatus
from services.engine.node.race import first_of
from services.engine.node.timing import Timing

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """Bounds of a replica's life, in seconds."""

    ready_timeout_s: float = 300.0
    unhealthy_timeout_s: float = 10.0
    health_interval_s: float = 1.0
    kill_grace_s: float = 3.0


@dataclass(frozen=True, slots=True)
class SlotTools:
    """What every slot of a node works with. `on_end` is told of each end that was not ordered."""

    launcher: Launcher
    client: ReplicaClient
    timing: Timing
    limits: SlotLimits
    on_change: Callable[[], None]
    on_end: Callable[[str, ProcessEnd], None]


class ReplicaSlot:
    """Level-triggered: `update` and `retire` may be called at any time and only the newest order counts. `run` owns the process."""

    def __init__(self, order: Order, tools: SlotTools) -> None:
        self._order = order
        self._tools = tools
        self._retired = False
        self._changed = Event()
        self._backoff = Backoff()
        self.status = SlotStatus(order.replica_id, Phase.STARTING)

    def update(self, order: Order) -> None:
        """A newer order for the slot."""
        self._retired = False
        self._order = order
        self._changed.set()

    def retire(self, timeout_s: float | None = None) -> None:
        """The slot is not wanted any more: its replica drains, within `timeout_s` or else its own limit, then `run` ends."""
        self._retired = True
        limit_s = self._order.drain_timeout_s if timeout_s is None else timeout_s
        deadline = self._tools.timing.unix_ms() + int(limit_s * 1000)
        if self._order.draining:
            deadline = min(deadline, self._order.drain_deadline_unix_ms)
        self._order = replace(self._order, draining=True, drain_deadline_unix_ms=deadline)
        self._changed.set()

    async def run(self) -> None:
        """Until the slot is retired and its replica has ended. Cancelled, it kills the replica."""
        while True:
            if not self._order.draining:
                await self._live()
                continue
            self._tell(Phase.STOPPED)
            if self._retired:
                return
            await self._changed.wait()
            self._changed.clear()

    async def _live(self) -> None:
        """One life of the replica, and the pause after it unless its end was ordered."""
        order, began = self._order, self._tools.timing.monotonic()
        self._tell(Phase.STARTING)
        try:
            process = await self._tools.launcher.launch(order)
        except LaunchError as error:
            await self._back_off(order, ProcessEnd("launch", str(error)), 0.0)
            return
        log.info("replica started", extra={"fields": {"replica": order.replica_id, "pid": process.pid, "address": process.address}})
        try:
            end = await self._watch(process, order)
        finally:
            process.kill()
            await process.wait()
        if end is not None:
            await self._back_off(order, end, self._tools.timing.monotonic() - began)

    async def _watch(self, process: ReplicaProcess, order: Order) -> ProcessEnd | None:
        """How the replica ended by itself or for bad health; None when it was drained by order."""
        ended, left = await first_of(process.wait(), self._until_unfit_or_released(process, order))
        if ended is not None and not self._is_released(order):
            return ended
        if isinstance(left, ProcessEnd):
            return left
        if ended is None:
            await self._drain(process)
        return None

    async def _until_unfit_or_released(self, process: ReplicaProcess, order: Order) -> ProcessEnd | None:
        unfit, _ = await first_of(self._until_unfit(process.address), self._until_released(order))
        return unfit

    async def _until_unfit(self, address: str) -> ProcessEnd:
        timing, limits = self._tools.timing, self._tools.limits
        serving, last_good = False, timing.monotonic()
        while True:
            if await self._tools.client.is_serving(address):
                last_good = timing.monotonic()
                if not serving:
                    serving = True
                    self._tell(Phase.RUNNING)
            silent_s = timing.monotonic() - last_good
            if not serving and silent_s >= limits.ready_timeout_s:
                return ProcessEnd("not_ready", f"was not ready within {limits.ready_timeout_s:g} s")
            if serving and silent_s >= limits.unhealthy_timeout_s:
                return ProcessEnd("unhealthy", f"was not healthy for {limits.unhealthy_timeout_s:g} s")
            await timing.sleep(limits.health_interval_s)

    async def _drain(self, process: ReplicaProcess) -> None:
        """SIGTERM; at the deadline running work is told that it ends; a moment later SIGKILL."""
        self._tell(Phase.DRAINING)
        fallback = self._tools.timing.unix_ms() + self._order.drain_timeout_s * 1000
        process.terminate()
        ended, _ = await first_of(process.wait(), self._until_deadline(fallback))
        if ended is None:
            log.warning("drain deadline has passed", extra={"fields": {"replica": self._order.replica_id}})
            await first_of(process.wait(), self._end_work(process.address))

    async def _end_work(self, address: str) -> None:
        """Gives the replica the kill grace to tell everybody whose work it ends."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._tools.client.end_work(address))
            tasks.create_task(self._tools.timing.sleep(self._tools.limits.kill_grace_s))

    async def _until_deadline(self, fallback_unix_ms: int) -> None:
        """The order's deadline, which may move meanwhile; the fallback for a replica that only makes way for another order."""
        while True:
            self._changed.clear()
            deadline = self._order.drain_deadline_unix_ms if self._order.draining else fallback_unix_ms
            left_s = (deadline - self._tools.timing.unix_ms()) / 1000
            if left_s <= 0:
                return
            await first_of(self._tools.timing.sleep(left_s), self._changed.wait())

    async def _back_off(self, order: Order, end: ProcessEnd, lived_s: float) -> None:
        self._backoff = self._backoff.after_end(lived_s)
        delay_s = self._backoff.delay_s
        fields = {"replica": order.replica_id, "end": end.sentence, "lived_s": round(lived_s, 1), "pause_s": delay_s}
        log.warning("replica ended", extra={"fields": fields})
        self._tools.on_end(order.replica_id, end)
        self.status = replace(self.status, last_exit=end.sentence)
        self._tell(Phase.BACKING_OFF)
        await first_of(self._tools.timing.sleep(delay_s), self._until_released(order))
        if not self._order.draining:
            self.status = replace(self.status, num_restarts=self.status.num_restarts + 1)

    async def _until_released(self, order: Order) -> None:
        while not self._is_released(order):
            await self._changed.wait()
            self._changed.clear()

    def _is_released(self, order: Order) -> bool:
        return self._order.draining or not self._order.same_replica(order)

    def _tell(self, phase: Phase) -> None:
        self.status = replace(self.status, phase=phase)
        self._tools.on_change()
