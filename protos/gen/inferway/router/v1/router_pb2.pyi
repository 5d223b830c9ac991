from inferway.common.v1 import registry_pb2 as _registry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DoneOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DONE_OUTCOME_UNSPECIFIED: _ClassVar[DoneOutcome]
    DONE_OUTCOME_FINISHED: _ClassVar[DoneOutcome]
    DONE_OUTCOME_CANCELLED: _ClassVar[DoneOutcome]
    DONE_OUTCOME_REPLICA_LOST: _ClassVar[DoneOutcome]
    DONE_OUTCOME_FAILED: _ClassVar[DoneOutcome]
DONE_OUTCOME_UNSPECIFIED: DoneOutcome
DONE_OUTCOME_FINISHED: DoneOutcome
DONE_OUTCOME_CANCELLED: DoneOutcome
DONE_OUTCOME_REPLICA_LOST: DoneOutcome
DONE_OUTCOME_FAILED: DoneOutcome

class DispatchRequest(_message.Message):
    __slots__ = ("hello", "want", "first_token", "done")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    hello: DispatchHello
    want: Want
    first_token: FirstToken
    done: Done
    def __init__(self, hello: _Optional[_Union[DispatchHello, _Mapping]] = ..., want: _Optional[_Union[Want, _Mapping]] = ..., first_token: _Optional[_Union[FirstToken, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ...) -> None: ...

class DispatchHello(_message.Message):
    __slots__ = ("gateway_id", "held_grants")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    HELD_GRANTS_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    held_grants: _containers.RepeatedCompositeFieldContainer[HeldGrant]
    def __init__(self, gateway_id: _Optional[str] = ..., held_grants: _Optional[_Iterable[_Union[HeldGrant, _Mapping]]] = ...) -> None: ...

class HeldGrant(_message.Message):
    __slots__ = ("want_id", "replica_id", "model", "reserved_tokens")
    WANT_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RESERVED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    want_id: str
    replica_id: str
    model: str
    reserved_tokens: int
    def __init__(self, want_id: _Optional[str] = ..., replica_id: _Optional[str] = ..., model: _Optional[str] = ..., reserved_tokens: _Optional[int] = ...) -> None: ...

class Want(_message.Message):
    __slots__ = ("want_id", "model", "model_version", "tenant_id", "prompt_tokens", "max_output_tokens", "deadline_unix_ms", "excluded_replica_ids", "priority", "block_hashes", "request_id")
    WANT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_REPLICA_IDS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    want_id: str
    model: str
    model_version: str
    tenant_id: str
    prompt_tokens: int
    max_output_tokens: int
    deadline_unix_ms: int
    excluded_replica_ids: _containers.RepeatedScalarFieldContainer[str]
    priority: int
    block_hashes: _containers.RepeatedScalarFieldContainer[bytes]
    request_id: str
    def __init__(self, want_id: _Optional[str] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., tenant_id: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., max_output_tokens: _Optional[int] = ..., deadline_unix_ms: _Optional[int] = ..., excluded_replica_ids: _Optional[_Iterable[str]] = ..., priority: _Optional[int] = ..., block_hashes: _Optional[_Iterable[bytes]] = ..., request_id: _Optional[str] = ...) -> None: ...

class FirstToken(_message.Message):
    __slots__ = ("want_id",)
    WANT_ID_FIELD_NUMBER: _ClassVar[int]
    want_id: str
    def __init__(self, want_id: _Optional[str] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("want_id", "outcome")
    WANT_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    want_id: str
    outcome: DoneOutcome
    def __init__(self, want_id: _Optional[str] = ..., outcome: _Optional[_Union[DoneOutcome, str]] = ...) -> None: ...

class DispatchResponse(_message.Message):
    __slots__ = ("grant", "reject")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    grant: Grant
    reject: Reject
    def __init__(self, grant: _Optional[_Union[Grant, _Mapping]] = ..., reject: _Optional[_Union[Reject, _Mapping]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("want_id", "replica_id", "address", "model_version", "queue_ms")
    WANT_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    want_id: str
    replica_id: str
    address: str
    model_version: str
    queue_ms: int
    def __init__(self, want_id: _Optional[str] = ..., replica_id: _Optional[str] = ..., address: _Optional[str] = ..., model_version: _Optional[str] = ..., queue_ms: _Optional[int] = ...) -> None: ...

class Reject(_message.Message):
    __slots__ = ("want_id", "reason", "message", "retry_after_ms")
    WANT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    want_id: str
    reason: str
    message: str
    retry_after_ms: int
    def __init__(self, want_id: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("want",)
    WANT_FIELD_NUMBER: _ClassVar[int]
    want: Want
    def __init__(self, want: _Optional[_Union[Want, _Mapping]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("verdicts", "picked_replica_id", "queue_position", "reason")
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    PICKED_REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[ReplicaVerdict]
    picked_replica_id: str
    queue_position: int
    reason: str
    def __init__(self, verdicts: _Optional[_Iterable[_Union[ReplicaVerdict, _Mapping]]] = ..., picked_replica_id: _Optional[str] = ..., queue_position: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ReplicaVerdict(_message.Message):
    __slots__ = ("replica_id", "excluded_by", "scores", "total")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_BY_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    excluded_by: str
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    total: float
    def __init__(self, replica_id: _Optional[str] = ..., excluded_by: _Optional[str] = ..., scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ..., total: _Optional[float] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("scorer", "value", "weight")
    SCORER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    scorer: str
    value: float
    weight: float
    def __init__(self, scorer: _Optional[str] = ..., value: _Optional[float] = ..., weight: _Optional[float] = ...) -> None: ...

class ListReplicasRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ListReplicasResponse(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaView]
    def __init__(self, replicas: _Optional[_Iterable[_Union[ReplicaView, _Mapping]]] = ...) -> None: ...

class ReplicaView(_message.Message):
    __slots__ = ("replica", "connected", "num_granted", "num_running", "num_waiting", "num_free_blocks", "load_age_s")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    NUM_GRANTED_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LOAD_AGE_S_FIELD_NUMBER: _ClassVar[int]
    replica: _registry_pb2.Replica
    connected: bool
    num_granted: int
    num_running: int
    num_waiting: int
    num_free_blocks: int
    load_age_s: float
    def __init__(self, replica: _Optional[_Union[_registry_pb2.Replica, _Mapping]] = ..., connected: _Optional[bool] = ..., num_granted: _Optional[int] = ..., num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., load_age_s: _Optional[float] = ...) -> None: ...
