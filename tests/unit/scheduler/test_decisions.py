"""The log of decisions."""

from services.scheduler.decisions import MAX_DECISIONS, DecisionLog, describe
from services.scheduler.fleet import Assignment
from services.scheduler.plan import Place, Remove, StartDrain
from tests.harness.memory_fleet_store import MemoryFleetStore, Reign

NOW = 1_700_000_000_000


async def test_decisions_newest_last_with_time() -> None:
    store = MemoryFleetStore()
    log = DecisionLog(store)
    await log.append("m", ["one", "two"], NOW, Reign())
    await log.append("m", ["three"], NOW + 1000, Reign())
    assert store.decisions["m"] == ["2023-11-14T22:13:20Z one", "2023-11-14T22:13:20Z two", "2023-11-14T22:13:21Z three"]


async def test_decisions_bounded() -> None:
    store = MemoryFleetStore()
    await DecisionLog(store).append("m", [str(number) for number in range(MAX_DECISIONS + 50)], NOW, Reign())
    assert len(store.decisions["m"]) == MAX_DECISIONS
    assert store.decisions["m"][-1].endswith(f" {MAX_DECISIONS + 49}")


async def test_decisions_repetition_of_the_newest_is_not_kept() -> None:
    store = MemoryFleetStore()
    log = DecisionLog(store)
    await log.append("m", ["problem: no node is registered"], NOW, Reign())
    await log.append("m", ["problem: no node is registered"], NOW + 5000, Reign(2))
    assert len(store.decisions["m"]) == 1


async def test_decisions_former_leader_writes_nothing() -> None:
    store, reign = MemoryFleetStore(), Reign()
    reign.lost.set()
    await DecisionLog(store).append("m", ["late"], NOW, reign)
    assert store.decisions == {}


def test_decisions_each_kind_of_change_reads_as_a_sentence() -> None:
    assignment = Assignment("m-0", "a", "m")
    assert describe(Place(assignment, "room")) == "m-0 placed on a: room"
    assert describe(StartDrain(assignment, "too many")) == "m-0 drains on a: too many"
    assert describe(Remove(assignment, "gone")) == "m-0 removed from a: gone"
