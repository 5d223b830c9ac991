"""The node agent's heart: as many slots as there are orders, each made true; like a kubelet it never asks anybody what to do next."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

from services.engine.node.order import Order, SlotStatus
from services.engine.node.slot import ReplicaSlot, SlotTools

log = logging.getLogger(__name__)


class NodeAgent:
    """Owns every slot of the node. `run` owns their tasks; `shut_down` may be called once while it runs."""

    def __init__(self, tools: SlotTools) -> None:
        self._tools = tools
        self._slots: dict[str, ReplicaSlot] = {}
        self._closing = False
        self._ended = asyncio.Event()

    def statuses(self) -> list[SlotStatus]:
        """What happens in each slot, by replica."""
        return [slot.status for _, slot in sorted(self._slots.items())]

    async def run(self, orders: AsyncIterator[Mapping[str, Order]]) -> None:
        """Follows the orders, by replica id, until cancelled; every item is the whole of what the node has to run."""
        async with asyncio.TaskGroup() as tasks:
            async for snapshot in orders:
                if not self._closing:
                    self._apply(snapshot, tasks)

    async def shut_down(self, timeout_s: float) -> None:
        """Drains every replica within `timeout_s`, killing what is left after it, and takes no more orders."""
        self._closing = True
        for slot in self._slots.values():
            slot.retire(max(0.0, timeout_s - self._tools.limits.kill_grace_s))
        while self._slots:
            self._ended.clear()
            await self._ended.wait()

    def _apply(self, orders: Mapping[str, Order], tasks: asyncio.TaskGroup) -> None:
        for replica_id in self._slots.keys() - orders.keys():
            self._slots[replica_id].retire()
        for replica_id, order in sorted(orders.items()):
            slot = self._slots.get(replica_id)
            if slot is not None:
                slot.update(order)
            else:
                log.info("new order", extra={"fields": {"replica": replica_id, "model": order.model}})
                self._slots[replica_id] = ReplicaSlot(order, self._tools)
                tasks.create_task(self._run_slot(replica_id))

    async def _run_slot(self, replica_id: str) -> None:
        try:
            await self._slots[replica_id].run()
        finally:
            del self._slots[replica_id]
            self._ended.set()
            self._tools.on_change()
