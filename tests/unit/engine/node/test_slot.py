"""One slot: start, watch, restart, drain."""

import asyncio
from dataclasses import replace

from services.engine.node.order import Order, Phase
from tests.harness.manual_timing import settle
from tests.unit.engine.node.conftest import Node

ORDER = Order("m-0", "m", drain_timeout_s=30)


def draining(node: Node, seconds: float) -> Order:
    return replace(ORDER, draining=True, drain_deadline_unix_ms=node.timing.unix_ms() + int(seconds * 1000))


async def test_slot_healthy_replica_becomes_running(node: Node) -> None:
    node.launcher.serving_at_start = False
    await node.order(ORDER)
    assert node.status().phase is Phase.STARTING
    node.launcher.newest.serving = True
    await node.timing.advance(1)
    assert node.status().phase is Phase.RUNNING


async def test_slot_replica_dies_restarted_after_growing_pauses(node: Node) -> None:
    await node.order(ORDER)
    for number, pause_s in enumerate([1, 2, 4, 8, 16, 30, 30], start=1):
        node.launcher.newest.end()
        await settle()
        assert node.status().phase is Phase.BACKING_OFF
        await node.timing.advance(pause_s - 0.01)
        assert len(node.launcher.processes) == number
        await node.timing.advance(0.01)
        assert len(node.launcher.processes) == number + 1
    assert (node.status().num_restarts, node.status().last_exit) == (7, "ended with status 1")
    assert [end.kind for _, end in node.ends] == ["exit"] * 7


async def test_slot_long_life_makes_the_next_pause_short_again(node: Node) -> None:
    await node.order(ORDER)
    for _ in range(5):
        node.launcher.newest.end()
        await node.timing.advance(30)
    await node.timing.advance(60)
    started = len(node.launcher.processes)
    node.launcher.newest.end()
    await node.timing.advance(1)
    assert len(node.launcher.processes) == started + 1


async def test_slot_not_ready_in_time_killed_and_started_again(node: Node) -> None:
    node.launcher.serving_at_start = False
    await node.order(ORDER)
    await node.timing.advance(59)
    assert node.launcher.newest.alive
    await node.timing.advance(1)
    assert node.launcher.processes[0].killed
    assert node.status().last_exit == "was not ready within 60 s"
    await node.timing.advance(1)
    assert len(node.launcher.processes) == 2


async def test_slot_hung_replica_killed_after_the_bound(node: Node) -> None:
    await node.order(ORDER)
    await node.timing.advance(100)
    node.launcher.newest.serving = False
    await node.timing.advance(9)
    assert node.launcher.newest.alive
    await node.timing.advance(2)
    assert node.launcher.processes[0].killed
    assert node.status().last_exit == "was not healthy for 10 s"


async def test_slot_short_hang_is_forgiven(node: Node) -> None:
    await node.order(ORDER)
    for _ in range(5):
        node.launcher.newest.serving = False
        await node.timing.advance(8)
        node.launcher.newest.serving = True
        await node.timing.advance(2)
    assert len(node.launcher.processes) == 1
    assert node.launcher.newest.alive


async def test_slot_launch_refused_backs_off_and_says_why(node: Node) -> None:
    node.launcher.refuse = "could not be started: No such file or directory"
    await node.order(ORDER)
    assert (node.status().phase, node.status().last_exit) == (Phase.BACKING_OFF, node.launcher.refuse)
    node.launcher.refuse = ""
    await node.timing.advance(1)
    assert node.status().phase is Phase.RUNNING


async def test_slot_drain_lets_the_replica_finish(node: Node) -> None:
    await node.order(ORDER)
    process = node.launcher.newest
    process.stubborn = True
    await node.order(draining(node, 20))
    assert (node.status().phase, process.terminated, process.alive) == (Phase.DRAINING, True, True)
    await node.timing.advance(19)
    process.end("exit", "ended with status 0")
    await settle()
    assert (node.status().phase, process.killed, process.told_to_end) == (Phase.STOPPED, False, False)
    await node.timing.advance(100)
    assert len(node.launcher.processes) == 1


async def test_slot_drain_deadline_ends_work_then_kills(node: Node) -> None:
    await node.order(ORDER)
    process = node.launcher.newest
    process.stubborn = True
    await node.order(draining(node, 20))
    await node.timing.advance(20)
    assert (process.told_to_end, process.alive) == (True, True)
    await node.timing.advance(3)
    assert (process.killed, node.status().phase) == (True, Phase.STOPPED)


async def test_slot_shortened_drain_obeys_the_new_deadline(node: Node) -> None:
    await node.order(ORDER)
    node.launcher.newest.stubborn = True
    await node.order(draining(node, 1000))
    await node.order(draining(node, 5))
    await node.timing.advance(8)
    assert node.status().phase is Phase.STOPPED


async def test_slot_drained_while_backing_off_stops_at_once(node: Node) -> None:
    await node.order(ORDER)
    node.launcher.newest.end()
    await settle()
    await node.order(draining(node, 20))
    assert node.status().phase is Phase.STOPPED


async def test_slot_drained_while_starting_is_not_taken_for_a_failure(node: Node) -> None:
    node.launcher.serving_at_start = False
    await node.order(ORDER)
    await node.order(draining(node, 20))
    assert (node.status().phase, node.ends) == (Phase.STOPPED, [])


async def test_slot_order_wanted_again_after_drain_starts_anew(node: Node) -> None:
    await node.order(ORDER)
    await node.order(draining(node, 20))
    await node.order(ORDER)
    assert (node.status().phase, len(node.launcher.alive)) == (Phase.RUNNING, 1)


async def test_slot_other_settings_replace_the_process(node: Node) -> None:
    await node.order(ORDER)
    await node.order(replace(ORDER, engine_settings={"max_num_sequences": "4"}))
    assert node.launcher.processes[0].terminated
    assert node.launcher.newest.order.engine_settings == {"max_num_sequences": "4"}
    assert (node.status().phase, len(node.launcher.alive)) == (Phase.RUNNING, 1)


async def test_slot_corrected_settings_need_not_wait_out_the_pause(node: Node) -> None:
    await node.order(ORDER)
    for _ in range(6):
        node.launcher.newest.end()
        await node.timing.advance(30)
    node.launcher.newest.end()
    await settle()
    await node.order(replace(ORDER, engine_settings={"max_num_sequences": "4"}))
    assert node.status().phase is Phase.RUNNING


async def test_slot_unchanged_order_leaves_the_process_alone(node: Node) -> None:
    await node.order(ORDER)
    await node.order(replace(ORDER, drain_timeout_s=99))
    assert (len(node.launcher.processes), node.launcher.newest.terminated) == (1, False)


async def test_slot_cancelled_kills_the_replica(node: Node) -> None:
    from services.engine.node.slot import ReplicaSlot

    slot = ReplicaSlot(ORDER, node.tools)
    task = asyncio.ensure_future(slot.run())
    await settle()
    task.cancel()
    await asyncio.wait({task})
    assert (node.launcher.newest.killed, node.launcher.alive) == (True, [])
