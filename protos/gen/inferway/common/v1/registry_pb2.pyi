from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_STATE_UNSPECIFIED: _ClassVar[ReplicaState]
    REPLICA_STATE_STARTING: _ClassVar[ReplicaState]
    REPLICA_STATE_READY: _ClassVar[ReplicaState]
    REPLICA_STATE_DRAINING: _ClassVar[ReplicaState]

class ReplicaProcessPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_PROCESS_PHASE_UNSPECIFIED: _ClassVar[ReplicaProcessPhase]
    REPLICA_PROCESS_PHASE_STARTING: _ClassVar[ReplicaProcessPhase]
    REPLICA_PROCESS_PHASE_RUNNING: _ClassVar[ReplicaProcessPhase]
    REPLICA_PROCESS_PHASE_BACKING_OFF: _ClassVar[ReplicaProcessPhase]
    REPLICA_PROCESS_PHASE_DRAINING: _ClassVar[ReplicaProcessPhase]
    REPLICA_PROCESS_PHASE_STOPPED: _ClassVar[ReplicaProcessPhase]
REPLICA_STATE_UNSPECIFIED: ReplicaState
REPLICA_STATE_STARTING: ReplicaState
REPLICA_STATE_READY: ReplicaState
REPLICA_STATE_DRAINING: ReplicaState
REPLICA_PROCESS_PHASE_UNSPECIFIED: ReplicaProcessPhase
REPLICA_PROCESS_PHASE_STARTING: ReplicaProcessPhase
REPLICA_PROCESS_PHASE_RUNNING: ReplicaProcessPhase
REPLICA_PROCESS_PHASE_BACKING_OFF: ReplicaProcessPhase
REPLICA_PROCESS_PHASE_DRAINING: ReplicaProcessPhase
REPLICA_PROCESS_PHASE_STOPPED: ReplicaProcessPhase

class Replica(_message.Message):
    __slots__ = ("replica_id", "model", "model_version", "address", "metrics_address", "node_id", "state", "block_size", "num_blocks", "max_num_sequences", "max_context_tokens", "incarnation", "ready_unix_ms", "runner")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    METRICS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    READY_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    model: str
    model_version: str
    address: str
    metrics_address: str
    node_id: str
    state: ReplicaState
    block_size: int
    num_blocks: int
    max_num_sequences: int
    max_context_tokens: int
    incarnation: str
    ready_unix_ms: int
    runner: str
    def __init__(self, replica_id: _Optional[str] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., address: _Optional[str] = ..., metrics_address: _Optional[str] = ..., node_id: _Optional[str] = ..., state: _Optional[_Union[ReplicaState, str]] = ..., block_size: _Optional[int] = ..., num_blocks: _Optional[int] = ..., max_num_sequences: _Optional[int] = ..., max_context_tokens: _Optional[int] = ..., incarnation: _Optional[str] = ..., ready_unix_ms: _Optional[int] = ..., runner: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("node_id", "host", "devices", "memory_bytes", "failure_domain", "cached_models", "max_num_replicas", "address", "processes")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CACHED_MODELS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    host: str
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    memory_bytes: int
    failure_domain: str
    cached_models: _containers.RepeatedScalarFieldContainer[str]
    max_num_replicas: int
    address: str
    processes: _containers.RepeatedCompositeFieldContainer[ReplicaProcess]
    def __init__(self, node_id: _Optional[str] = ..., host: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., memory_bytes: _Optional[int] = ..., failure_domain: _Optional[str] = ..., cached_models: _Optional[_Iterable[str]] = ..., max_num_replicas: _Optional[int] = ..., address: _Optional[str] = ..., processes: _Optional[_Iterable[_Union[ReplicaProcess, _Mapping]]] = ...) -> None: ...

class ReplicaProcess(_message.Message):
    __slots__ = ("replica_id", "phase", "num_restarts", "last_exit")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    NUM_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    LAST_EXIT_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    phase: ReplicaProcessPhase
    num_restarts: int
    last_exit: str
    def __init__(self, replica_id: _Optional[str] = ..., phase: _Optional[_Union[ReplicaProcessPhase, str]] = ..., num_restarts: _Optional[int] = ..., last_exit: _Optional[str] = ...) -> None: ...

class Cordon(_message.Message):
    __slots__ = ("node_id", "since_unix_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    since_unix_ms: int
    def __init__(self, node_id: _Optional[str] = ..., since_unix_ms: _Optional[int] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("kind", "index", "memory_bytes", "island")
    KIND_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ISLAND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    index: int
    memory_bytes: int
    island: str
    def __init__(self, kind: _Optional[str] = ..., index: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., island: _Optional[str] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("replica_id", "node_id", "model", "model_version", "draining", "drain_deadline_unix_ms", "device_indexes", "engine_settings", "drain_timeout_s")
    class EngineSettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DRAIN_DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_INDEXES_FIELD_NUMBER: _ClassVar[int]
    ENGINE_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    node_id: str
    model: str
    model_version: str
    draining: bool
    drain_deadline_unix_ms: int
    device_indexes: _containers.RepeatedScalarFieldContainer[int]
    engine_settings: _containers.ScalarMap[str, str]
    drain_timeout_s: int
    def __init__(self, replica_id: _Optional[str] = ..., node_id: _Optional[str] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., draining: _Optional[bool] = ..., drain_deadline_unix_ms: _Optional[int] = ..., device_indexes: _Optional[_Iterable[int]] = ..., engine_settings: _Optional[_Mapping[str, str]] = ..., drain_timeout_s: _Optional[int] = ...) -> None: ...

class Deployment(_message.Message):
    __slots__ = ("model", "model_version", "num_replicas", "engine_settings", "drain_timeout_s", "generation")
    class EngineSettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    model: str
    model_version: str
    num_replicas: int
    engine_settings: _containers.ScalarMap[str, str]
    drain_timeout_s: int
    generation: int
    def __init__(self, model: _Optional[str] = ..., model_version: _Optional[str] = ..., num_replicas: _Optional[int] = ..., engine_settings: _Optional[_Mapping[str, str]] = ..., drain_timeout_s: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("alias", "targets")
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    alias: str
    targets: _containers.RepeatedCompositeFieldContainer[RouteTarget]
    def __init__(self, alias: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[RouteTarget, _Mapping]]] = ...) -> None: ...

class RouteTarget(_message.Message):
    __slots__ = ("model", "model_version", "weight")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    model: str
    model_version: str
    weight: int
    def __init__(self, model: _Optional[str] = ..., model_version: _Optional[str] = ..., weight: _Optional[int] = ...) -> None: ...

class Tenant(_message.Message):
    __slots__ = ("tenant_id", "display_name", "cache_salt", "created_unix_ms")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    display_name: str
    cache_salt: bytes
    created_unix_ms: int
    def __init__(self, tenant_id: _Optional[str] = ..., display_name: _Optional[str] = ..., cache_salt: _Optional[bytes] = ..., created_unix_ms: _Optional[int] = ...) -> None: ...

class ApiKey(_message.Message):
    __slots__ = ("key_id", "tenant_id", "display_name", "models", "expires_unix_ms", "created_unix_ms", "admin")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    tenant_id: str
    display_name: str
    models: _containers.RepeatedScalarFieldContainer[str]
    expires_unix_ms: int
    created_unix_ms: int
    admin: bool
    def __init__(self, key_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., display_name: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., expires_unix_ms: _Optional[int] = ..., created_unix_ms: _Optional[int] = ..., admin: _Optional[bool] = ...) -> None: ...
