"""The agent: as many slots as orders."""

import asyncio

from services.engine.node.order import Order, Phase
from tests.harness.manual_timing import settle
from tests.unit.engine.node.conftest import Node

M0, M1 = Order("m-0", "m", drain_timeout_s=30), Order("m-1", "m", drain_timeout_s=30)


async def test_agent_two_orders_two_replicas(node: Node) -> None:
    await node.order(M0, M1)
    assert [status.phase for status in node.agent.statuses()] == [Phase.RUNNING, Phase.RUNNING]
    assert sorted(process.order.replica_id for process in node.launcher.alive) == ["m-0", "m-1"]


async def test_agent_order_gone_drains_and_forgets_the_slot(node: Node) -> None:
    await node.order(M0, M1)
    victim = next(process for process in node.launcher.alive if process.order.replica_id == "m-1")
    victim.stubborn = True
    await node.order(M0)
    assert node.status("m-1").phase is Phase.DRAINING
    await node.timing.advance(33)
    assert (victim.told_to_end, victim.killed) == (True, True)
    assert [status.replica_id for status in node.agent.statuses()] == ["m-0"]


async def test_agent_order_back_while_draining_runs_again(node: Node) -> None:
    await node.order(M0)
    node.launcher.newest.stubborn = True
    await node.order()
    await node.order(M0)
    node.launcher.newest.end("exit", "ended with status 0")
    await settle()
    assert (node.status().phase, len(node.launcher.processes)) == (Phase.RUNNING, 2)


async def test_agent_one_crashing_slot_leaves_the_other_alone(node: Node) -> None:
    await node.order(M0, M1)
    first = next(process for process in node.launcher.alive if process.order.replica_id == "m-0")
    for _ in range(3):
        next(process for process in node.launcher.alive if process.order.replica_id == "m-1").end()
        await node.timing.advance(30)
    assert first.alive
    assert (node.status("m-0").num_restarts, node.status("m-1").num_restarts) == (0, 3)


async def test_agent_shut_down_drains_all_and_takes_no_orders(node: Node) -> None:
    await node.order(M0, M1)
    for process in node.launcher.alive:
        process.stubborn = True
    closing = asyncio.ensure_future(node.agent.shut_down(15))
    await settle()
    await node.order(M0, M1, Order("m-2", "m"))
    assert len(node.launcher.processes) == 2
    await node.timing.advance(11.9)
    assert not any(process.told_to_end for process in node.launcher.processes)
    await node.timing.advance(3.2)
    await asyncio.wait_for(closing, 1)
    assert all(process.told_to_end and process.killed for process in node.launcher.processes)
    assert node.agent.statuses() == []
