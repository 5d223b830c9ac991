"""Rounds of the leader over a store in memory."""

import asyncio
import itertools
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from services.kit.etcd import EtcdUnavailable
from services.scheduler.fleet import Deployment
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.reconcile import Reconciler
from tests.harness.fleets import node
from tests.harness.manual_timing import ManualTiming
from tests.harness.memory_fleet_store import MemoryFleetStore, Reign


class Setting:
    """A reconciler, its store and its clock; `reigns` are handed to whoever campaigns."""

    def __init__(self) -> None:
        self.store, self.clock, self.prometheus = MemoryFleetStore(), ManualTiming(), CollectorRegistry()
        self.reigns: asyncio.Queue[Reign] = asyncio.Queue()
        self.reconciler = Reconciler(
            self.store,
            self,  # type: ignore[arg-type]
            self.clock,
            SchedulerMetrics(self.prometheus),
            node_grace_s=30,
            resync_s=0.05,
        )
        self.store.nodes = {"a": node("a"), "b": node("b")}
        self.store.put_deployment(Deployment("m", num_replicas=2))

    async def campaign(self) -> Reign:
        return await self.reigns.get()

    def placed(self) -> list[tuple[str, str]]:
        return sorted((each.replica_id, each.node_id) for each in self.store.assigned.values())

    def figure(self, name: str, **labels: str) -> float | None:
        return self.prometheus.get_sample_value(f"inferway_scheduler_{name}", labels)


@pytest.fixture
def setting() -> Setting:
    return Setting()


async def until(condition: Callable[[], bool]) -> None:
    """Polls: the loop under test offers nothing to wait on."""
    async with asyncio.timeout(20):
        for _ in itertools.count():
            if condition():
                return
            await asyncio.sleep(0.01)


async def test_round_carries_the_plan_out_and_says_why(setting: Setting) -> None:
    assert await setting.reconciler.round(Reign())
    assert setting.placed() == [("m-0", "a"), ("m-1", "b")]
    assert [sentence.split()[1] for sentence in setting.store.decisions["m"]] == ["m-0", "m-1"]
    assert setting.figure("changes_total", kind="place") == 2
    assert setting.figure("replicas_wanted", model="m") == 2


async def test_round_of_a_former_leader_changes_nothing(setting: Setting) -> None:
    reign = Reign()
    await reign.resign()
    assert not await setting.reconciler.round(reign)
    assert setting.placed() == []


async def test_round_problem_is_told_once_and_its_end_too(setting: Setting) -> None:
    nodes, setting.store.nodes = setting.store.nodes, {}
    for _ in range(3):
        await setting.reconciler.round(Reign())
    setting.store.nodes = nodes
    await setting.reconciler.round(Reign())
    told = [sentence.partition(" ")[2] for sentence in setting.store.decisions["m"] if "problem" in sentence]
    assert told == ["problem: 2 replicas have no place: no node is registered", "problem solved: every replica has a place"]


async def test_round_absent_node_is_lost_only_after_the_grace(setting: Setting) -> None:
    await setting.reconciler.round(Reign())
    del setting.store.nodes["b"]
    await setting.reconciler.round(Reign())
    await setting.clock.advance(29)
    await setting.reconciler.round(Reign())
    assert setting.placed() == [("m-0", "a"), ("m-1", "b")]
    await setting.clock.advance(1)
    await setting.reconciler.round(Reign())
    assert setting.placed() == [("m-0", "a"), ("m-2", "a")]
    assert setting.figure("nodes", state="lost") == 1


async def test_round_registry_away_raises(setting: Setting) -> None:
    setting.store.away = True
    with pytest.raises(EtcdUnavailable):
        await setting.reconciler.round(Reign())


async def test_run_registry_away_for_hours_loses_no_node(setting: Setting) -> None:
    task = asyncio.ensure_future(setting.reconciler.run())
    setting.reigns.put_nowait(Reign())
    await until(lambda: len(setting.placed()) == 2)
    setting.store.away, nodes = True, setting.store.nodes
    await until(lambda: (setting.figure("failed_rounds_total") or 0) >= 1)
    await setting.clock.advance(7200)
    setting.store.nodes, setting.store.away = {"a": nodes["a"]}, False
    await until(lambda: setting.figure("nodes", state="absent") == 1)
    assert setting.placed() == [("m-0", "a"), ("m-1", "b")]
    await stop(task)


async def test_run_lost_leadership_campaigns_again(setting: Setting) -> None:
    task = asyncio.ensure_future(setting.reconciler.run())
    first, second = Reign(1), Reign(2)
    setting.reigns.put_nowait(first)
    await until(lambda: setting.figure("leading") == 1)
    first.lost.set()
    await until(lambda: setting.figure("leading") == 0)
    setting.reigns.put_nowait(second)
    await until(lambda: setting.figure("leading") == 1)
    await stop(task)
    assert second.lost.is_set(), "a leader that ends resigns"


async def stop(task: "asyncio.Future[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
