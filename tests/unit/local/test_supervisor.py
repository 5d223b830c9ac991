"""The supervisor's policy, with fake processes and a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from deploy.local.backoff import HEALTHY_AFTER_S
from deploy.local.child import LIVENESS_INTERVAL_S, MAX_SILENCES
from deploy.local.child_spec import ChildSpec
from deploy.local.mesh_status import ChildState
from deploy.local.supervisor import HOUSEKEEPING_INTERVAL_S, Supervisor
from tests.harness.children import TIMEOUT_S, Board, FakeLauncher, ManualClock


class Readiness:
    """Health answers that a test controls; ready and alive unless told otherwise."""

    def __init__(self) -> None:
        self.unready: set[str] = set()
        self.silent: set[str] = set()
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        """Who was asked whether it is alive."""
        self.probed: asyncio.Queue[str] = asyncio.Queue()
        """Who was asked whether it is ready."""

    def spec(self, name: str, *after: str, grace_s: float = 7.0) -> ChildSpec:
        async def probe() -> bool:
            self.probed.put_nowait(name)
            return name not in self.unready

        async def alive() -> bool:
            self.asked.put_nowait(name)
            return name not in self.silent

        return ChildSpec(name=name, argv=(name,), probe=probe, after=frozenset(after), grace_s=grace_s, alive=alive)


class Rig:
    """One supervisor in the test's hands."""

    def __init__(self, specs: Sequence[ChildSpec], launcher: FakeLauncher) -> None:
        self.clock = ManualClock()
        self.board = Board()
        self.launcher = launcher
        self.stop = asyncio.Event()
        self.num_chores = 0
        self.chore_done = asyncio.Event()
        self.supervisor = Supervisor(specs, launcher, self.clock, self.board.publish, self._chore)

    def _chore(self) -> None:
        self.num_chores += 1
        self.chore_done.set()


Start = Callable[..., AbstractAsyncContextManager[Rig]]


@pytest.fixture
def start() -> Start:
    @asynccontextmanager
    async def running(*specs: ChildSpec, failures: int = 0) -> AsyncIterator[Rig]:
        rig = Rig(specs, FakeLauncher(failures))
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
            group.create_task(rig.supervisor.run(rig.stop))
            yield rig
            rig.stop.set()

    return running


async def test_supervisor_starts_a_child_only_when_what_it_waits_for_is_ready(start: Start) -> None:
    health = Readiness()
    health.unready.add("etcd")
    async with start(health.spec("etcd"), health.spec("gateway", "etcd")) as rig:
        await rig.board.until(lambda states: states.get("etcd") is ChildState.STARTING)
        assert rig.board.states()["gateway"] is ChildState.WAITING
        health.unready.clear()
        rig.clock.advance(1)
        await rig.board.until_all(ChildState.READY)

    assert rig.launcher.order == ["etcd", "gateway"]


async def test_supervisor_starts_independent_children_side_by_side(start: Start) -> None:
    health = Readiness()
    health.unready |= {"etcd", "kafka"}
    async with start(health.spec("etcd"), health.spec("kafka")) as rig:
        await rig.board.until_all(ChildState.STARTING)

    assert sorted(rig.launcher.order) == ["etcd", "kafka"]


async def test_supervisor_restarts_a_child_that_keeps_dying_with_growing_pauses(start: Start) -> None:
    health = Readiness()
    async with start(health.spec("router")) as rig:
        for pause_s in (1.0, 2.0, 4.0):
            await rig.board.until_all(ChildState.READY)
            rig.launcher.started["router"][-1].die(3)
            await rig.board.until_all(ChildState.BACKING_OFF)
            assert rig.clock.slept[-1] == pause_s
            rig.clock.advance(pause_s)
        await rig.board.until_all(ChildState.READY)
        (status,) = rig.board.statuses

    assert (status.num_restarts, status.last_exit) == (3, "exit status 3")
    assert [process.num_group_kills for process in rig.launcher.started["router"]] == [1, 1, 1, 0]


async def test_supervisor_forgives_early_deaths_after_a_long_life(start: Start) -> None:
    health = Readiness()
    async with start(health.spec("router")) as rig:
        for alive_s in (0.0, 0.0, HEALTHY_AFTER_S):
            await rig.board.until_all(ChildState.READY)
            rig.clock.advance(alive_s)
            rig.launcher.started["router"][-1].die(-9)
            await rig.board.until_all(ChildState.BACKING_OFF)
            pause_s = rig.clock.slept[-1]
            rig.clock.advance(pause_s)
        await rig.board.until_all(ChildState.READY)
        (status,) = rig.board.statuses

    assert pause_s == 1.0
    assert status.last_exit == "killed by SIGKILL"


async def test_supervisor_tries_again_when_a_program_cannot_be_started(start: Start) -> None:
    async with start(Readiness().spec("router"), failures=1) as rig:
        await rig.board.until_all(ChildState.BACKING_OFF)
        assert rig.board.statuses[0].last_exit == "could not start: No such file or directory"
        rig.clock.advance(1)
        await rig.board.until_all(ChildState.READY)


async def test_supervisor_leaves_other_children_alone_when_one_dies(start: Start) -> None:
    health = Readiness()
    async with start(health.spec("etcd"), health.spec("gateway", "etcd")) as rig:
        await rig.board.until_all(ChildState.READY)
        rig.launcher.started["etcd"][-1].die(1)
        await rig.board.until(lambda states: states["etcd"] is ChildState.BACKING_OFF)
        assert rig.board.states()["gateway"] is ChildState.READY

    assert len(rig.launcher.started["gateway"]) == 1


async def test_supervisor_kills_and_restarts_a_ready_child_that_is_silent_several_times_in_a_row(start: Start) -> None:
    health = Readiness()
    async with start(health.spec("router")) as rig:
        await rig.board.until_all(ChildState.READY)
        health.silent.add("router")
        for _ in range(MAX_SILENCES):
            assert rig.launcher.started["router"][0].num_group_kills == 0
            await ask(rig, health)
        await rig.board.until_all(ChildState.BACKING_OFF)
        (status,) = rig.board.statuses
        assert status.last_exit == "did not answer: killed by SIGKILL"
        health.silent.clear()
        rig.clock.advance(1)
        await rig.board.until_all(ChildState.READY)

    assert len(rig.launcher.started["router"]) == 2


async def test_supervisor_leaves_a_child_alone_that_answers_now_and_then(start: Start) -> None:
    health = Readiness()
    async with start(health.spec("router")) as rig:
        await rig.board.until_all(ChildState.READY)
        for number in range(3 * MAX_SILENCES):
            health.silent = set() if number % MAX_SILENCES == 0 else {"router"}
            await ask(rig, health)
        assert rig.board.states() == {"router": ChildState.READY}

    assert len(rig.launcher.started["router"]) == 1


async def test_supervisor_does_not_ask_a_child_whether_it_is_alive_before_it_is_ready(start: Start) -> None:
    health = Readiness()
    health.unready.add("router")
    health.silent.add("router")
    async with start(health.spec("router")) as rig:
        await rig.board.until_all(ChildState.STARTING)
        for _ in range(2 * MAX_SILENCES):
            await health.probed.get()
            rig.clock.advance(LIVENESS_INTERVAL_S)
        assert health.asked.empty()

    assert len(rig.launcher.started["router"]) == 1


async def ask(rig: Rig, health: Readiness) -> None:
    """Let the time of one question pass."""
    rig.clock.advance(LIVENESS_INTERVAL_S)
    await health.asked.get()


async def test_supervisor_stops_in_reverse_order_with_each_childs_grace(start: Start) -> None:
    health = Readiness()
    stopped: list[str] = []
    async with start(health.spec("etcd", grace_s=5), health.spec("gateway", "etcd"), health.spec("envoy", "gateway")) as rig:
        await rig.board.until_all(ChildState.READY)

        def remember(statuses: object) -> None:
            for name, state in rig.board.states().items():
                if state is ChildState.STOPPED and name not in stopped:
                    stopped.append(name)

        rig.stop.set()
        await rig.board.until(lambda states: remember(states) is None and set(states.values()) == {ChildState.STOPPED})

    assert stopped == ["envoy", "gateway", "etcd"]
    assert rig.launcher.started["etcd"][0].stopped_with == [5]


async def test_supervisor_stopped_while_a_child_waits_never_starts_it(start: Start) -> None:
    health = Readiness()
    health.unready.add("etcd")
    async with start(health.spec("etcd"), health.spec("gateway", "etcd")) as rig:
        await rig.board.until(lambda states: states.get("etcd") is ChildState.STARTING)

    assert rig.launcher.order == ["etcd"]
    assert set(rig.board.states().values()) == {ChildState.STOPPED}


async def test_supervisor_keeps_house_at_its_interval(start: Start) -> None:
    async with start(Readiness().spec("etcd")) as rig:
        await rig.board.until_all(ChildState.READY)
        assert rig.num_chores == 0
        rig.clock.advance(HOUSEKEEPING_INTERVAL_S)
        await rig.chore_done.wait()

    assert rig.num_chores == 1
