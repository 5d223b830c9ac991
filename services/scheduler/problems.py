"""Why a deployment is not as desired: one sentence that names the part which stands in the way."""

from services.scheduler.fleet import Assignment, Deployment, Fleet, Phase
from services.scheduler.placement import make_plan

_MAX_NAMED = 3


def find_problem(fleet: Fleet, deployment: Deployment, now_unix_ms: int) -> str:
    """What keeps the deployment from its desired state, empty when nothing does. Absent nodes count as lost for this purpose."""
    as_seen = Fleet(fleet.deployments, fleet.nodes, fleet.assignments, fleet.replicas, fleet.cordoned, fleet.absent)
    clauses = [make_plan(as_seen, now_unix_ms).problems.get(deployment.model, "")]
    mine = sorted((each for each in fleet.assignments if each.model == deployment.model), key=lambda each: each.slot)
    found = [clause for each in mine if (clause := _replica_problem(fleet, each))]
    clauses += found[:_MAX_NAMED]
    if len(found) > _MAX_NAMED:
        clauses.append(f"and {len(found) - _MAX_NAMED} more")
    return "; ".join(clause for clause in clauses if clause)


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
