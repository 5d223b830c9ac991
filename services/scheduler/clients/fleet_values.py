"""Translation between the registry's messages and the scheduler's values; nothing is decided here."""

from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from inferway.common.v1 import registry_pb2 as pb
from services.scheduler.fleet import Assignment, Deployment, Node, Phase, Process, Replica, ReplicaState

M = TypeVar("M", bound=Message)

CUDA = "cuda"

_STATES = {
    pb.REPLICA_STATE_STARTING: ReplicaState.STARTING,
    pb.REPLICA_STATE_READY: ReplicaState.READY,
    pb.REPLICA_STATE_DRAINING: ReplicaState.DRAINING,
}
_PHASES = {
    pb.REPLICA_PROCESS_PHASE_STARTING: Phase.STARTING,
    pb.REPLICA_PROCESS_PHASE_RUNNING: Phase.RUNNING,
    pb.REPLICA_PROCESS_PHASE_BACKING_OFF: Phase.BACKING_OFF,
    pb.REPLICA_PROCESS_PHASE_DRAINING: Phase.DRAINING,
    pb.REPLICA_PROCESS_PHASE_STOPPED: Phase.STOPPED,
}
_STATES_TO_PROTO = {state: number for number, state in _STATES.items()}
_PHASES_TO_PROTO = {phase: number for number, phase in _PHASES.items()}


def decode(value: bytes, message: M) -> M | None:
    """The message in a registry value; None when it does not parse."""
    try:
        return json_format.Parse(value, message, ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError):
        return None


def encode(message: Message) -> bytes:
    """The registry value of a message."""
    return json_format.MessageToJson(message, indent=None).encode()


def deployment_from_proto(message: pb.Deployment, revision: int = 0) -> Deployment:
    """Every field, with the registry's revision."""
    return Deployment(
        model=message.model,
        model_version=message.model_version,
        num_replicas=message.num_replicas,
        engine_settings=dict(message.engine_settings),
        drain_timeout_s=message.drain_timeout_s,
        generation=message.generation,
        revision=revision,
    )


def deployment_to_proto(deployment: Deployment) -> pb.Deployment:
    """Every field but the revision."""
    return pb.Deployment(
        model=deployment.model,
        model_version=deployment.model_version,
        num_replicas=deployment.num_replicas,
        engine_settings=dict(deployment.engine_settings),
        drain_timeout_s=deployment.drain_timeout_s,
        generation=deployment.generation,
    )


def assignment_from_proto(message: pb.Assignment, revision: int = 0) -> Assignment:
    """Every field, with the registry's revision."""
    return Assignment(
        replica_id=message.replica_id,
        node_id=message.node_id,
        model=message.model,
        model_version=message.model_version,
        draining=message.draining,
        drain_deadline_unix_ms=message.drain_deadline_unix_ms,
        device_indexes=tuple(message.device_indexes),
        engine_settings=dict(message.engine_settings),
        drain_timeout_s=message.drain_timeout_s,
        revision=revision,
    )


def assignment_to_proto(assignment: Assignment) -> pb.Assignment:
    """Every field but the revision."""
    return pb.Assignment(
        replica_id=assignment.replica_id,
        node_id=assignment.node_id,
        model=assignment.model,
        model_version=assignment.model_version,
        draining=assignment.draining,
        drain_deadline_unix_ms=assignment.drain_deadline_unix_ms,
        device_indexes=assignment.device_indexes,
        engine_settings=dict(assignment.engine_settings),
        drain_timeout_s=assignment.drain_timeout_s,
    )


def node_from_proto(message: pb.Node) -> Node:
    """What placement needs of a node; only CUDA devices are given out one by one."""
    return Node(
        node_id=message.node_id,
        max_num_replicas=message.max_num_replicas,
        cached_models=frozenset(message.cached_models),
        failure_domain=message.failure_domain,
        device_indexes=tuple(device.index for device in message.devices if device.kind == CUDA),
        processes={each.replica_id: process_from_proto(each) for each in message.processes},
    )


def process_from_proto(message: pb.ReplicaProcess) -> Process:
    """Every field."""
    return Process(message.replica_id, _PHASES.get(message.phase, Phase.UNKNOWN), message.num_restarts, message.last_exit)


def process_to_proto(process: Process) -> pb.ReplicaProcess:
    """Every field."""
    phase = _PHASES_TO_PROTO.get(process.phase, pb.REPLICA_PROCESS_PHASE_UNSPECIFIED)
    return pb.ReplicaProcess(replica_id=process.replica_id, phase=phase, num_restarts=process.num_restarts, last_exit=process.last_exit)


def replica_from_proto(message: pb.Replica) -> Replica:
    """What placement and listings need of a replica."""
    state = _STATES.get(message.state, ReplicaState.UNKNOWN)
    return Replica(message.replica_id, message.model, message.node_id, state, message.address, message.runner)


def state_to_proto(state: ReplicaState) -> pb.ReplicaState:
    """The state's number on the wire."""
    return _STATES_TO_PROTO.get(state, pb.REPLICA_STATE_UNSPECIFIED)
