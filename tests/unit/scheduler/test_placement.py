"""Placement: tables of single plans, and properties of whole histories."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.fleet import Assignment, Deployment, Fleet, Phase, Process
from services.scheduler.placement import REMOVAL_MARGIN_MS, make_plan
from services.scheduler.plan import Place, Plan, Remove, StartDrain
from tests.harness.fleets import NOW, carry_out, fleet, node, react, ready, settle

A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def assigned(slot: int, node_id: str, **fields: object) -> Assignment:
    return Assignment(f"m-{slot}", node_id, "m", **fields)  # type: ignore[arg-type]


def draining(slot: int, node_id: str, deadline: int = NOW + 10_000) -> Assignment:
    return assigned(slot, node_id, draining=True, drain_deadline_unix_ms=deadline)


def places(plan: Plan) -> list[tuple[str, str]]:
    return [(change.assignment.replica_id, change.assignment.node_id) for change in plan.changes if isinstance(change, Place)]


def drains(plan: Plan) -> list[str]:
    return [change.assignment.replica_id for change in plan.changes if isinstance(change, StartDrain)]


def removals(plan: Plan) -> list[str]:
    return [change.assignment.replica_id for change in plan.changes if isinstance(change, Remove)]


def test_placement_two_replicas_two_nodes_spread() -> None:
    plan = make_plan(fleet([node("a"), node("b")], [Deployment("m", num_replicas=2)]), NOW)
    assert places(plan) == [("m-0", "a"), ("m-1", "b")]
    assert plan.problems == {}


def test_placement_failure_domains_before_nodes() -> None:
    nodes = [node("a", failure_domain="r1"), node("b", failure_domain="r1"), node("c", failure_domain="r2")]
    plan = make_plan(fleet(nodes, [Deployment("m", num_replicas=3)]), NOW)
    assert places(plan) == [("m-0", "a"), ("m-1", "c"), ("m-2", "b")]


def test_placement_only_where_the_weights_are() -> None:
    nodes = [node("a", cached_models=frozenset()), node("b", cached_models=frozenset({f"m@{A}"}))]
    plan = make_plan(fleet(nodes, [Deployment("m", A, num_replicas=2), Deployment("n", num_replicas=1)]), NOW)
    assert places(plan) == [("m-0", "b"), ("m-1", "b")]
    assert plan.problems == {"n": "1 replica has no place: no node has n in its model store; run: inferway model import n"}


def test_placement_wrong_version_is_a_problem_not_a_silence() -> None:
    plan = make_plan(fleet([node("a", cached_models=frozenset({f"m@{A}"}))], [Deployment("m", B, num_replicas=1)]), NOW)
    assert places(plan) == []
    assert f"no node has m@{B} in its model store" in plan.problems["m"]


@pytest.mark.parametrize(
    ("nodes", "cordoned", "expected"),
    [
        ([], frozenset(), "no node is registered"),
        ([node("a", 1)], frozenset(), "a is full (1 of 1 replicas)"),
        ([node("a", 1), node("b", 1)], frozenset({"b"}), "a is full (1 of 1 replicas), b is drained"),
    ],
)
def test_placement_no_room_says_why(nodes: list, cordoned: frozenset[str], expected: str) -> None:
    plan = make_plan(fleet(nodes, [Deployment("m", num_replicas=3)], cordoned=cordoned), NOW)
    assert plan.problems["m"].endswith(f"no place: {expected}")


def test_placement_draining_replica_still_holds_its_room_and_its_name() -> None:
    plan = make_plan(fleet([node("a", 1), node("b", 1)], [Deployment("m", num_replicas=1)], [draining(0, "a")]), NOW)
    assert places(plan) == [("m-1", "b")]


def test_placement_slot_of_a_replica_that_still_lives_is_not_reused() -> None:
    stray = ready(assigned(0, "a"))
    plan = make_plan(fleet([node("a")], [Deployment("m", num_replicas=1)], replicas=stray), NOW)
    assert places(plan) == [("m-1", "a")]


def test_placement_scale_down_drains_with_deadline_and_keeps_the_spread() -> None:
    current = [assigned(0, "a"), assigned(1, "b"), assigned(2, "a", drain_timeout_s=60)]
    deployment = Deployment("m", num_replicas=2, drain_timeout_s=7)  # changed since they were placed
    plan = make_plan(fleet([node("a"), node("b")], [deployment], current, replicas=ready(*current)), NOW)
    assert drains(plan) == ["m-2"]
    assert plan.changes[0].assignment.drain_deadline_unix_ms == NOW + 7000


def test_placement_scale_down_prefers_what_does_not_work() -> None:
    current = [assigned(0, "a"), assigned(1, "b"), assigned(2, "c")]
    plan = make_plan(
        fleet([node("a"), node("b"), node("c")], [Deployment("m", num_replicas=2)], current, replicas=ready(*current[1:])), NOW
    )
    assert drains(plan) == ["m-0"]


def test_placement_drained_replica_removed_only_when_stopped() -> None:
    leaving, deployment = draining(0, "a"), Deployment("m", num_replicas=0)
    running = node("a", processes={"m-0": Process("m-0", Phase.DRAINING)})
    stopped = node("a", processes={"m-0": Process("m-0", Phase.STOPPED)})
    assert removals(make_plan(fleet([running], [deployment], [leaving]), NOW)) == []
    assert removals(make_plan(fleet([stopped], [deployment], [leaving]), NOW)) == ["m-0"]


def test_placement_drain_past_its_deadline_is_given_up_in_the_end() -> None:
    late = draining(0, "a", deadline=NOW - REMOVAL_MARGIN_MS)
    fleet_then = fleet([node("a")], [Deployment("m")], [late])
    assert removals(make_plan(fleet_then, NOW)) == []
    assert removals(make_plan(fleet_then, NOW + 1)) == ["m-0"]


def test_placement_absent_node_keeps_its_work_until_it_is_lost() -> None:
    current = [assigned(0, "a"), assigned(1, "b")]
    away = fleet([node("b"), node("c")], [Deployment("m", num_replicas=2)], current, replicas=ready(current[1]))
    assert make_plan(away, NOW).changes == []
    plan = make_plan(replace(away, lost=frozenset({"a"})), NOW)
    assert places(plan) == [("m-2", "c")]
    assert removals(plan) == ["m-0"]


def test_placement_lost_node_without_room_elsewhere_keeps_its_assignment() -> None:
    current = [assigned(0, "a"), assigned(1, "b")]
    plan = make_plan(fleet([node("b", 1)], [Deployment("m", num_replicas=2)], current, lost=frozenset({"a"})), NOW)
    assert plan.changes == []
    assert "1 replica has no place: b is full" in plan.problems["m"]


def test_placement_undeployed_model_drains() -> None:
    current = [assigned(0, "a"), assigned(1, "gone")]
    plan = make_plan(fleet([node("a")], [], current, lost=frozenset({"gone"})), NOW)
    assert (drains(plan), removals(plan)) == (["m-0"], ["m-1"])


def test_placement_cordoned_node_drains_and_others_take_over() -> None:
    current = [assigned(0, "a")]
    plan = make_plan(fleet([node("a"), node("b")], [Deployment("m", num_replicas=1)], current, cordoned=frozenset({"a"})), NOW)
    assert (drains(plan), places(plan)) == (["m-0"], [("m-1", "b")])


def test_placement_one_cuda_device_each() -> None:
    plan = make_plan(fleet([node("a", device_indexes=(0, 1))], [Deployment("m", num_replicas=3)]), NOW)
    assert [change.assignment.device_indexes for change in plan.changes] == [(0,), (1,), (0,)]


def test_placement_new_settings_replace_one_by_one_without_a_gap() -> None:
    old = [assigned(0, "a"), assigned(1, "b")]
    new = Deployment("m", num_replicas=2, engine_settings={"threads": "2"}, generation=2)
    start = fleet([node("a"), node("b")], [new], old, replicas=ready(*old))
    end, states = settle(start)
    for state in states:
        assert sum(state.is_ready(each) for each in state.assignments if not each.draining) >= 2
        assert sum(not each.draining for each in state.assignments) <= 3
    assert all(each.engine_settings == {"threads": "2"} for each in end.assignments)
    assert len(end.assignments) == 2


def test_placement_new_settings_without_spare_room_replace_one_after_the_other() -> None:
    old = [assigned(0, "a"), assigned(1, "b")]
    new = Deployment("m", num_replicas=2, engine_settings={"threads": "2"}, generation=2)
    end, states = settle(fleet([node("a", 1), node("b", 1)], [new], old, replicas=ready(*old)))
    assert all(sum(state.is_ready(each) for each in state.assignments if not each.draining) >= 1 for state in states)
    assert sorted(each.node_id for each in end.assignments) == ["a", "b"]
    assert all(each.engine_settings for each in end.assignments)


def test_placement_version_that_nobody_has_costs_no_running_replica() -> None:
    old = [assigned(0, "a"), assigned(1, "a")]
    plan = make_plan(fleet([node("a")], [Deployment("m", "ffffffffffff", num_replicas=2)], old, replicas=ready(*old)), NOW)
    assert plan.changes == []
    assert "no node has m@ffffffffffff" in plan.problems["m"]


def test_placement_broken_new_settings_leave_the_old_replicas() -> None:
    old = [assigned(0, "a"), assigned(1, "a")]
    state = fleet([node("a")], [Deployment("m", num_replicas=2, engine_settings={"bad": "1"})], old, replicas=ready(*old))
    for _ in range(10):
        state = replace(react(carry_out(state, make_plan(state, NOW))), replicas=ready(*old))
    assert sorted(each.replica_id for each in state.assignments if not each.engine_settings) == ["m-0", "m-1"]
    assert sum(bool(each.engine_settings) for each in state.assignments) == 1


nodes_strategy = st.lists(
    st.builds(
        node,
        st.sampled_from("abcdef"),
        st.integers(0, 5),
        failure_domain=st.sampled_from(["", "r1", "r2"]),
        cached_models=st.sampled_from([frozenset(), frozenset({f"m@{A}"}), frozenset({f"m@{A}", f"m@{B}", "n@c"})]),
        device_indexes=st.sampled_from([(), (0, 1)]),
    ),
    max_size=6,
    unique_by=lambda each: each.node_id,
)
deployments_strategy = st.lists(
    st.builds(
        Deployment,
        st.sampled_from("mn"),
        model_version=st.sampled_from(["", A]),
        num_replicas=st.integers(0, 12),
        engine_settings=st.sampled_from([{}, {"threads": "2"}]),
    ),
    max_size=2,
    unique_by=lambda each: each.model,
)
cordons_strategy = st.frozensets(st.sampled_from("abcdef"), max_size=2)


def assert_sound(state: Fleet) -> None:
    held = Counter(each.node_id for each in state.assignments)
    assert all(held[each.node_id] <= each.max_num_replicas for each in state.nodes.values())
    names = Counter(each.replica_id for each in state.assignments)
    assert not names or max(names.values()) == 1


@settings(max_examples=200)
@given(nodes_strategy, st.lists(st.tuples(deployments_strategy, cordons_strategy), min_size=1, max_size=4))
def test_placement_any_history_comes_to_rest_within_capacity(nodes: list, history: list) -> None:
    state = fleet(nodes)
    for deployments, cordoned in history:
        state, states = settle(replace(state, deployments={each.model: each for each in deployments}, cordoned=cordoned))
        for each in states:
            assert_sound(each)
        usable = {n.node_id: n for n in nodes if n.node_id not in cordoned}
        for deployment in deployments:
            have = [each for each in state.assignments if each.model == deployment.model]
            room = sum(
                n.max_num_replicas - sum(each.node_id == n.node_id for each in state.assignments)
                for n in usable.values()
                if n.has_model(deployment.model, deployment.model_version)
            )
            if usable and any(n.has_model(deployment.model, deployment.model_version) for n in usable.values()):
                assert len(have) == deployment.num_replicas or (len(have) < deployment.num_replicas and room <= 0)
        assert all(each.node_id in usable for each in state.assignments)
        assert {each.model for each in state.assignments} <= {each.model for each in deployments}


@settings(max_examples=100)
@given(nodes_strategy, deployments_strategy, st.frozensets(st.sampled_from("abcdef"), max_size=3))
def test_placement_lost_nodes_are_replaced_as_far_as_there_is_room(nodes: list, deployments: list, lost: frozenset[str]) -> None:
    state, _ = settle(fleet(nodes, deployments))
    survivors = {node_id: each for node_id, each in state.nodes.items() if node_id not in lost}
    after, states = settle(replace(state, nodes=survivors, lost=lost))
    for each in states:
        assert_sound(each)
    for deployment in deployments:
        alive = sum(each.model == deployment.model and each.node_id not in lost for each in after.assignments)
        before = sum(each.model == deployment.model for each in state.assignments)
        total = sum(each.model == deployment.model for each in after.assignments)
        assert total == before
        assert alive >= sum(each.model == deployment.model and each.node_id not in lost for each in state.assignments)


@given(nodes_strategy, deployments_strategy)
def test_placement_same_snapshot_same_plan(nodes: list, deployments: list) -> None:
    one = make_plan(fleet(nodes, deployments), NOW)
    other = make_plan(fleet(list(reversed(nodes)), list(reversed(deployments))), NOW)
    assert one == other
