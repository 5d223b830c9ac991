"""The sentence that says why a deployment is not as desired."""

from dataclasses import replace

import pytest

from services.scheduler.fleet import Assignment, Deployment, Fleet, Phase, Process
from services.scheduler.problems import find_problems
from tests.harness.fleets import NOW, fleet, node, ready

WISH = Deployment("m", num_replicas=1)
PLACED = Assignment("m-0", "a", "m")


def with_process(phase: Phase, num_restarts: int = 0, last_exit: str = "") -> Fleet:
    process = Process("m-0", phase, num_restarts, last_exit)
    return fleet([node("a", processes={"m-0": process})], [WISH], [PLACED])


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (with_process(Phase.STARTING), ""),
        (with_process(Phase.RUNNING), ""),
        (with_process(Phase.BACKING_OFF, 0, "ended with status 3"), "m-0 on a ended 1 time, the last time it ended with status 3"),
        (with_process(Phase.BACKING_OFF, 2, "ended with status 3"), "m-0 on a ended 3 times, the last time it ended with status 3"),
        (with_process(Phase.STARTING, 2, "ended with status 3"), "m-0 on a ended 2 times, the last time it ended with status 3"),
        (fleet([], [WISH]), "1 replica has no place: no node is registered"),
    ],
)
def test_problem_states(state: Fleet, problem: str) -> None:
    assert find_problems(state, NOW)["m"] == problem


def test_problem_ready_replica_has_none_however_often_it_was_restarted() -> None:
    state = with_process(Phase.RUNNING, 9, "was killed by SIGKILL")
    assert find_problems(replace(state, replicas=ready(PLACED)), NOW)["m"] == ""


def test_problem_absent_node_is_named_together_with_what_it_means() -> None:
    state = fleet([node("b", 0)], [WISH], [PLACED])
    assert find_problems(state, NOW)["m"] == "1 replica has no place: b is full (0 of 0 replicas); m-0 on a: the node is not registered"


def test_problem_many_replicas_are_summed_up() -> None:
    wish = Deployment("m", num_replicas=9)
    assigned = [Assignment(f"m-{n}", "a", "m") for n in range(9)]
    processes = {each.replica_id: Process(each.replica_id, Phase.BACKING_OFF, 1, "ended with status 3") for each in assigned}
    problem = find_problems(fleet([node("a", 9, processes=processes)], [wish], assigned), NOW)["m"]
    assert problem.count("ended 2 times") == 3
    assert problem.endswith("; and 6 more")
