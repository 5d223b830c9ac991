"""Why a deployment is not as desired: one sentence that names the part which stands in the way."""

from dataclasses import replace

from services.scheduler.fleet import Assignment, Fleet, Phase
from services.scheduler.placement import make_plan

_MAX_NAMED = 3


def find_problems(fleet: Fleet, now_unix_ms: int) -> dict[str, str]:
    """What keeps each deployment from its desired state, empty when nothing does. Absent nodes count as lost for this purpose."""
    plan = make_plan(replace(fleet, lost=fleet.absent), now_unix_ms)
    return {model: _join(plan.problems.get(model, ""), _replica_problems(fleet, model)) for model in fleet.deployments}


def _join(placement: str, replicas: list[str]) -> str:
    more = [f"and {len(replicas) - _MAX_NAMED} more"] if len(replicas) > _MAX_NAMED else []
    return "; ".join(clause for clause in (placement, *replicas[:_MAX_NAMED], *more) if clause)


def _replica_problems(fleet: Fleet, model: str) -> list[str]:
    mine = sorted((each for each in fleet.assignments if each.model == model), key=lambda each: each.slot)
    return [problem for each in mine if (problem := _replica_problem(fleet, each))]


def _replica_problem(fleet: Fleet, assignment: Assignment) -> str:
    where = f"{assignment.replica_id} on {assignment.node_id}"
    if assignment.node_id not in fleet.nodes:
        return f"{where}: the node is not registered"
    if assignment.draining:
        return ""
    process = fleet.process_of(assignment)
    num_ends = process.num_restarts + (process.phase is Phase.BACKING_OFF)
    if num_ends and not fleet.is_ready(assignment):
        return f"{where} ended {num_ends} time{'s' if num_ends > 1 else ''}, the last time it {process.last_exit}"
    return ""
