"""Small fleets for placement tests, and a world that carries a plan out at once."""

from dataclasses import replace

from services.scheduler.fleet import Assignment, Deployment, Fleet, Node, Phase, Process, Replica, ReplicaState
from services.scheduler.placement import make_plan
from services.scheduler.plan import Place, Plan, StartDrain

NOW = 1_700_000_000_000
CACHED = frozenset({"m@aaaaaaaaaaaa", "m@bbbbbbbbbbbb", "n@cccccccccccc"})


def node(node_id: str, max_num_replicas: int = 4, **fields: object) -> Node:
    return Node(node_id, max_num_replicas, **{"cached_models": CACHED, **fields})  # type: ignore[arg-type]


def fleet(
    nodes: list[Node] | None = None,
    deployments: list[Deployment] | None = None,
    assignments: list[Assignment] | None = None,
    **fields: object,
) -> Fleet:
    return Fleet(
        nodes={each.node_id: each for each in nodes or []},
        deployments={each.model: each for each in deployments or []},
        assignments=tuple(assignments or []),
        **fields,  # type: ignore[arg-type]
    )


def ready(*assignments: Assignment) -> dict[str, Replica]:
    """The registrations of replicas that take work."""
    return {each.replica_id: Replica(each.replica_id, each.model, each.node_id, ReplicaState.READY) for each in assignments}


def carry_out(before: Fleet, plan: Plan) -> Fleet:
    """The fleet after the plan, with no replica having reacted yet."""
    assignments = {(each.node_id, each.replica_id): each for each in before.assignments}
    for change in plan.changes:
        key = (change.assignment.node_id, change.assignment.replica_id)
        if isinstance(change, Place):
            assert key not in assignments, "a place that is taken"
            assignments[key] = change.assignment
        elif isinstance(change, StartDrain):
            assert not assignments[key].draining, "drains already"
            assignments[key] = change.assignment
        else:
            del assignments[key]
    return replace(before, assignments=tuple(assignments.values()))


def react(before: Fleet) -> Fleet:
    """What well-behaved node agents do: wanted replicas become ready, draining ones end."""
    nodes = {}
    for node_id, each in before.nodes.items():
        mine = [assignment for assignment in before.assignments if assignment.node_id == node_id]
        phases = {a.replica_id: Process(a.replica_id, Phase.STOPPED if a.draining else Phase.RUNNING) for a in mine}
        nodes[node_id] = replace(each, processes=phases)
    running = [each for each in before.assignments if not each.draining and each.node_id in nodes]
    return replace(before, nodes=nodes, replicas=ready(*running))


def settle(before: Fleet, max_rounds: int = 200) -> tuple[Fleet, list[Fleet]]:
    """The fleet at rest and every state on the way there; fails when it does not come to rest."""
    states = [before]
    for _ in range(max_rounds):
        plan = make_plan(states[-1], NOW)
        after = react(carry_out(states[-1], plan))
        if not plan.changes and after == states[-1]:
            return states[-1], states
        states.append(after)
    raise AssertionError("placement does not come to rest")
