"""A node agent over pretended processes and a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import pytest

from services.engine.node.agent import NodeAgent
from services.engine.node.launcher import ProcessEnd
from services.engine.node.order import Order, SlotStatus
from services.engine.node.slot import SlotLimits, SlotTools
from tests.harness.manual_timing import ManualTiming, settle
from tests.harness.scripted_launcher import ScriptedLauncher


@dataclass
class Node:
    """The agent and what it works with."""

    launcher: ScriptedLauncher = field(default_factory=ScriptedLauncher)
    timing: ManualTiming = field(default_factory=ManualTiming)
    ends: list[tuple[str, ProcessEnd]] = field(default_factory=list)
    orders: asyncio.Queue[Mapping[str, Order]] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        limits = SlotLimits(ready_timeout_s=60, unhealthy_timeout_s=10, health_interval_s=1, kill_grace_s=3)
        self.tools = SlotTools(self.launcher, self.launcher, self.timing, limits, lambda: None, lambda *end: self.ends.append(end))
        self.agent = NodeAgent(self.tools)

    async def follow(self) -> AsyncIterator[Mapping[str, Order]]:
        while True:
            yield await self.orders.get()

    async def order(self, *orders: Order) -> None:
        """The whole of what the node has to run from now on."""
        self.orders.put_nowait({each.replica_id: each for each in orders})
        await settle()

    def status(self, replica_id: str = "m-0") -> SlotStatus:
        return {status.replica_id: status for status in self.agent.statuses()}[replica_id]


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node()
    task = asyncio.ensure_future(node.agent.run(node.follow()))
    await settle()
    yield node
    task.cancel()
    await asyncio.wait({task})
    assert not node.launcher.alive, "a cancelled agent leaves no process behind"
