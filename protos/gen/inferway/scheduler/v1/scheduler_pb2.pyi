from inferway.common.v1 import registry_pb2 as _registry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeployRequest(_message.Message):
    __slots__ = ("deployment",)
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    deployment: _registry_pb2.Deployment
    def __init__(self, deployment: _Optional[_Union[_registry_pb2.Deployment, _Mapping]] = ...) -> None: ...

class DeployResponse(_message.Message):
    __slots__ = ("deployment",)
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    deployment: _registry_pb2.Deployment
    def __init__(self, deployment: _Optional[_Union[_registry_pb2.Deployment, _Mapping]] = ...) -> None: ...

class ScaleRequest(_message.Message):
    __slots__ = ("model", "num_replicas")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    model: str
    num_replicas: int
    def __init__(self, model: _Optional[str] = ..., num_replicas: _Optional[int] = ...) -> None: ...

class ScaleResponse(_message.Message):
    __slots__ = ("deployment",)
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    deployment: _registry_pb2.Deployment
    def __init__(self, deployment: _Optional[_Union[_registry_pb2.Deployment, _Mapping]] = ...) -> None: ...

class UndeployRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class UndeployResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StartRolloutRequest(_message.Message):
    __slots__ = ("model", "model_version", "strategy")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    model: str
    model_version: str
    strategy: str
    def __init__(self, model: _Optional[str] = ..., model_version: _Optional[str] = ..., strategy: _Optional[str] = ...) -> None: ...

class StartRolloutResponse(_message.Message):
    __slots__ = ("rollout_id",)
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    rollout_id: str
    def __init__(self, rollout_id: _Optional[str] = ...) -> None: ...

class PauseRolloutRequest(_message.Message):
    __slots__ = ("rollout_id",)
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    rollout_id: str
    def __init__(self, rollout_id: _Optional[str] = ...) -> None: ...

class PauseRolloutResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PromoteRolloutRequest(_message.Message):
    __slots__ = ("rollout_id",)
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    rollout_id: str
    def __init__(self, rollout_id: _Optional[str] = ...) -> None: ...

class PromoteRolloutResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AbortRolloutRequest(_message.Message):
    __slots__ = ("rollout_id",)
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    rollout_id: str
    def __init__(self, rollout_id: _Optional[str] = ...) -> None: ...

class AbortRolloutResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("replica_id", "node_id", "timeout_s")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    node_id: str
    timeout_s: int
    def __init__(self, replica_id: _Optional[str] = ..., node_id: _Optional[str] = ..., timeout_s: _Optional[int] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("replica_ids",)
    REPLICA_IDS_FIELD_NUMBER: _ClassVar[int]
    replica_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, replica_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class UncordonRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class UncordonResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("decisions",)
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, decisions: _Optional[_Iterable[str]] = ...) -> None: ...

class ListDeploymentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDeploymentsResponse(_message.Message):
    __slots__ = ("deployments",)
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    deployments: _containers.RepeatedCompositeFieldContainer[DeploymentStatus]
    def __init__(self, deployments: _Optional[_Iterable[_Union[DeploymentStatus, _Mapping]]] = ...) -> None: ...

class DeploymentStatus(_message.Message):
    __slots__ = ("deployment", "num_ready", "num_starting", "num_draining", "problem")
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    NUM_READY_FIELD_NUMBER: _ClassVar[int]
    NUM_STARTING_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAINING_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    deployment: _registry_pb2.Deployment
    num_ready: int
    num_starting: int
    num_draining: int
    problem: str
    def __init__(self, deployment: _Optional[_Union[_registry_pb2.Deployment, _Mapping]] = ..., num_ready: _Optional[int] = ..., num_starting: _Optional[int] = ..., num_draining: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "cordoned_node_ids")
    NODES_FIELD_NUMBER: _ClassVar[int]
    CORDONED_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[_registry_pb2.Node]
    cordoned_node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[_Union[_registry_pb2.Node, _Mapping]]] = ..., cordoned_node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListAssignmentsRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ListAssignmentsResponse(_message.Message):
    __slots__ = ("assignments",)
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedCompositeFieldContainer[AssignmentStatus]
    def __init__(self, assignments: _Optional[_Iterable[_Union[AssignmentStatus, _Mapping]]] = ...) -> None: ...

class AssignmentStatus(_message.Message):
    __slots__ = ("assignment", "state", "address", "process", "runner")
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    assignment: _registry_pb2.Assignment
    state: _registry_pb2.ReplicaState
    address: str
    process: _registry_pb2.ReplicaProcess
    runner: str
    def __init__(self, assignment: _Optional[_Union[_registry_pb2.Assignment, _Mapping]] = ..., state: _Optional[_Union[_registry_pb2.ReplicaState, str]] = ..., address: _Optional[str] = ..., process: _Optional[_Union[_registry_pb2.ReplicaProcess, _Mapping]] = ..., runner: _Optional[str] = ...) -> None: ...
