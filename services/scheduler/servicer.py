"""ControlPlane on the wire: proto in, domain call, proto out."""

from typing import Any

import grpc

from inferway.scheduler.v1 import scheduler_pb2 as pb
from inferway.scheduler.v1 import scheduler_pb2_grpc
from services.kit.clock import Clock
from services.kit.errors import FieldError, NotFound, Unimplemented
from services.scheduler.clients import fleet_values as values
from services.scheduler.clients.fleet_store import EtcdFleetStore
from services.scheduler.desired_state import DesiredState, is_model_name
from services.scheduler.fleet import Assignment, Deployment, Fleet, Phase
from services.scheduler.problems import find_problems

Context = grpc.aio.ServicerContext[Any, Any]

_NO_ROLLOUT = "rollouts are not served yet; Deploy with another model_version replaces the replicas one by one"


class ControlPlaneServicer(scheduler_pb2_grpc.ControlPlaneServicer):
    """Any scheduler answers, leader or not: everything is read from and written to the registry."""

    def __init__(self, store: EtcdFleetStore, desired: DesiredState, clock: Clock) -> None:
        self._store = store
        self._desired = desired
        self._clock = clock

    async def Deploy(self, request: pb.DeployRequest, context: Context) -> pb.DeployResponse:
        """See the contract."""
        stored = await self._desired.deploy(values.deployment_from_proto(request.deployment))
        return pb.DeployResponse(deployment=values.deployment_to_proto(stored))

    async def Scale(self, request: pb.ScaleRequest, context: Context) -> pb.ScaleResponse:
        """See the contract."""
        stored = await self._desired.scale(request.model, request.num_replicas)
        return pb.ScaleResponse(deployment=values.deployment_to_proto(stored))

    async def Undeploy(self, request: pb.UndeployRequest, context: Context) -> pb.UndeployResponse:
        """See the contract."""
        await self._desired.undeploy(request.model)
        return pb.UndeployResponse()

    async def StartRollout(self, request: pb.StartRolloutRequest, context: Context) -> pb.StartRolloutResponse:
        """Not served yet."""
        raise Unimplemented(_NO_ROLLOUT)

    async def PauseRollout(self, request: pb.PauseRolloutRequest, context: Context) -> pb.PauseRolloutResponse:
        """Not served yet."""
        raise Unimplemented(_NO_ROLLOUT)

    async def PromoteRollout(self, request: pb.PromoteRolloutRequest, context: Context) -> pb.PromoteRolloutResponse:
        """Not served yet."""
        raise Unimplemented(_NO_ROLLOUT)

    async def AbortRollout(self, request: pb.AbortRolloutRequest, context: Context) -> pb.AbortRolloutResponse:
        """Not served yet."""
        raise Unimplemented(_NO_ROLLOUT)

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        """See the contract."""
        timeout_s = request.timeout_s if request.HasField("timeout_s") else None
        match request.WhichOneof("target"):
            case "replica_id":
                drained = await self._desired.drain_replica(request.replica_id, timeout_s)
            case "node_id":
                drained = await self._desired.drain_node(request.node_id, timeout_s)
            case _:
                raise FieldError("target", "replica_id or node_id is required")
        return pb.DrainResponse(replica_ids=drained)

    async def Uncordon(self, request: pb.UncordonRequest, context: Context) -> pb.UncordonResponse:
        """See the contract."""
        await self._desired.uncordon(request.node_id)
        return pb.UncordonResponse()

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        """The kept decisions, and what stands in the way now as the last sentence."""
        if not request.model:
            raise FieldError("model", "is required")
        fleet = await self._store.read()
        deployment = fleet.deployments.get(request.model)
        decisions = await self._store.read_decisions(request.model) if is_model_name(request.model) else []
        if deployment is None and not decisions:
            raise NotFound(
                f"model {request.model[:128]!r} is not deployed", reason="MODEL_NOT_FOUND", metadata={"model": request.model[:128]}
            )
        if problem := find_problems(fleet, self._clock.unix_ms()).get(request.model):
            decisions.append(f"now: {problem}")
        return pb.ExplainResponse(decisions=decisions)

    async def ListDeployments(self, request: pb.ListDeploymentsRequest, context: Context) -> pb.ListDeploymentsResponse:
        """See the contract."""
        fleet = await self._store.read()
        problems = find_problems(fleet, self._clock.unix_ms())
        deployments = [_deployment_status(fleet, each, problems[model]) for model, each in sorted(fleet.deployments.items())]
        return pb.ListDeploymentsResponse(deployments=deployments)

    async def ListNodes(self, request: pb.ListNodesRequest, context: Context) -> pb.ListNodesResponse:
        """See the contract."""
        cordoned = (await self._store.read()).cordoned
        return pb.ListNodesResponse(nodes=await self._store.list_nodes(), cordoned_node_ids=sorted(cordoned))

    async def ListAssignments(self, request: pb.ListAssignmentsRequest, context: Context) -> pb.ListAssignmentsResponse:
        """See the contract."""
        fleet = await self._store.read()
        found = [each for each in fleet.assignments if request.model in ("", each.model)]
        return pb.ListAssignmentsResponse(assignments=[_assignment_status(fleet, each) for each in found])


def _deployment_status(fleet: Fleet, deployment: Deployment, problem: str) -> pb.DeploymentStatus:
    mine = [each for each in fleet.assignments if each.model == deployment.model]
    staying = [each for each in mine if not each.draining]
    num_ready = sum(fleet.is_ready(each) for each in staying)
    return pb.DeploymentStatus(
        deployment=values.deployment_to_proto(deployment),
        num_ready=num_ready,
        num_starting=len(staying) - num_ready,
        num_draining=len(mine) - len(staying),
        problem=problem,
    )


def _assignment_status(fleet: Fleet, assignment: Assignment) -> pb.AssignmentStatus:
    status = pb.AssignmentStatus(assignment=values.assignment_to_proto(assignment))
    replica = fleet.replicas.get(assignment.replica_id)
    if replica is not None and replica.node_id == assignment.node_id:
        status.state = values.state_to_proto(replica.state)
        status.address = replica.address
        status.runner = replica.runner
    process = fleet.process_of(assignment)
    if process.phase is not Phase.UNKNOWN:
        status.process.CopyFrom(values.process_to_proto(process))
    return status
