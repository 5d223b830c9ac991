"""The fleet as one snapshot: what is wanted, which machines there are, what they were told to run and what they say they run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class ReplicaState(Enum):
    """What a registered replica says of itself."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Phase(Enum):
    """What the node agent says of the process of one assignment."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Deployment:
    """Desired state of one model. `revision` is the registry's, 0 when not stored yet."""

    model: str
    model_version: str = ""
    num_replicas: int = 0
    engine_settings: Mapping[str, str] = field(default_factory=dict)
    drain_timeout_s: int = 30
    generation: int = 0
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Process:
    """The process of one assignment; `last_exit` is empty when it has never ended."""

    replica_id: str
    phase: Phase = Phase.UNKNOWN
    num_restarts: int = 0
    last_exit: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A registered machine. `cached_models` holds name@version; `device_indexes` names the devices that are given out one by one."""

    node_id: str
    max_num_replicas: int
    cached_models: frozenset[str] = frozenset()
    failure_domain: str = ""
    device_indexes: tuple[int, ...] = ()
    processes: Mapping[str, Process] = field(default_factory=dict)

    @property
    def domain(self) -> str:
        """What fails together with this node: its failure domain, or the node alone when it has none."""
        return self.failure_domain or f"node {self.node_id}"

    def has_model(self, model: str, version: str) -> bool:
        """True when the node's model store holds that version, or any when `version` is empty."""
        if version:
            return f"{model}@{version}" in self.cached_models
        return any(cached.partition("@")[0] == model for cached in self.cached_models)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One replica that a node has to run. `drain_deadline_unix_ms` is 0 unless draining."""

    replica_id: str
    node_id: str
    model: str
    model_version: str = ""
    draining: bool = False
    drain_deadline_unix_ms: int = 0
    device_indexes: tuple[int, ...] = ()
    engine_settings: Mapping[str, str] = field(default_factory=dict)
    drain_timeout_s: int = 30
    revision: int = field(default=0, compare=False)

    def serves(self, deployment: Deployment) -> bool:
        """True when it is what the deployment would place today."""
        return self.model_version == deployment.model_version and dict(self.engine_settings) == dict(deployment.engine_settings)

    @property
    def slot(self) -> int:
        """The number at the end of the replica's name; -1 when there is none."""
        number = self.replica_id.rpartition("-")[2]
        return int(number) if number.isdecimal() else -1


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica that registered itself."""

    replica_id: str
    model: str
    node_id: str
    state: ReplicaState
    address: str = ""
    runner: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that placement looks at. `lost` names nodes whose registration has been gone for longer than is forgiven."""

    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()
    replicas: Mapping[str, Replica] = field(default_factory=dict)
    cordoned: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()

    @property
    def absent(self) -> frozenset[str]:
        """Nodes that have assignments and are not registered."""
        return frozenset(assignment.node_id for assignment in self.assignments) - self.nodes.keys()

    def process_of(self, assignment: Assignment) -> Process:
        """What the node agent says about the assignment; phase UNKNOWN when it says nothing."""
        node = self.nodes.get(assignment.node_id)
        unknown = Process(assignment.replica_id)
        return unknown if node is None else node.processes.get(assignment.replica_id, unknown)

    def drain_timeout_s(self, assignment: Assignment) -> int:
        """Time to finish running work: what its deployment says today, or said when the replica was placed if it is gone."""
        deployment = self.deployments.get(assignment.model)
        return assignment.drain_timeout_s if deployment is None else deployment.drain_timeout_s

    def is_ready(self, assignment: Assignment) -> bool:
        """True when the replica of this very assignment is registered and takes work."""
        replica = self.replicas.get(assignment.replica_id)
        return replica is not None and replica.node_id == assignment.node_id and replica.state is ReplicaState.READY
