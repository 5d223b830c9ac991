from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_OUTCOME_UNSPECIFIED: _ClassVar[RequestOutcome]
    REQUEST_OUTCOME_FINISHED: _ClassVar[RequestOutcome]
    REQUEST_OUTCOME_CANCELLED: _ClassVar[RequestOutcome]
    REQUEST_OUTCOME_DEADLINE: _ClassVar[RequestOutcome]
    REQUEST_OUTCOME_FAILED: _ClassVar[RequestOutcome]
    REQUEST_OUTCOME_INTERRUPTED: _ClassVar[RequestOutcome]

class AttemptOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_OUTCOME_UNSPECIFIED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_FINISHED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_CANCELLED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_DEADLINE: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_FAILED: _ClassVar[AttemptOutcome]
REQUEST_OUTCOME_UNSPECIFIED: RequestOutcome
REQUEST_OUTCOME_FINISHED: RequestOutcome
REQUEST_OUTCOME_CANCELLED: RequestOutcome
REQUEST_OUTCOME_DEADLINE: RequestOutcome
REQUEST_OUTCOME_FAILED: RequestOutcome
REQUEST_OUTCOME_INTERRUPTED: RequestOutcome
ATTEMPT_OUTCOME_UNSPECIFIED: AttemptOutcome
ATTEMPT_OUTCOME_FINISHED: AttemptOutcome
ATTEMPT_OUTCOME_CANCELLED: AttemptOutcome
ATTEMPT_OUTCOME_DEADLINE: AttemptOutcome
ATTEMPT_OUTCOME_FAILED: AttemptOutcome

class UsageRecord(_message.Message):
    __slots__ = ("producer_id", "sequence", "request", "attempt")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    producer_id: str
    sequence: int
    request: RequestRecord
    attempt: AttemptRecord
    def __init__(self, producer_id: _Optional[str] = ..., sequence: _Optional[int] = ..., request: _Optional[_Union[RequestRecord, _Mapping]] = ..., attempt: _Optional[_Union[AttemptRecord, _Mapping]] = ...) -> None: ...

class RequestRecord(_message.Message):
    __slots__ = ("charge_id", "request_id", "completion_id", "tenant_id", "key_id", "model", "model_version", "outcome", "finish_reason", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "accepted_unix_ms", "sealed_unix_ms", "num_attempts", "surface", "error_reason", "ttft_ms")
    CHARGE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    SEALED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SURFACE_FIELD_NUMBER: _ClassVar[int]
    ERROR_REASON_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    charge_id: str
    request_id: str
    completion_id: str
    tenant_id: str
    key_id: str
    model: str
    model_version: str
    outcome: RequestOutcome
    finish_reason: str
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int
    accepted_unix_ms: int
    sealed_unix_ms: int
    num_attempts: int
    surface: str
    error_reason: str
    ttft_ms: int
    def __init__(self, charge_id: _Optional[str] = ..., request_id: _Optional[str] = ..., completion_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., key_id: _Optional[str] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., outcome: _Optional[_Union[RequestOutcome, str]] = ..., finish_reason: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., accepted_unix_ms: _Optional[int] = ..., sealed_unix_ms: _Optional[int] = ..., num_attempts: _Optional[int] = ..., surface: _Optional[str] = ..., error_reason: _Optional[str] = ..., ttft_ms: _Optional[int] = ...) -> None: ...

class AttemptRecord(_message.Message):
    __slots__ = ("attempt_id", "charge_id", "request_id", "tenant_id", "model", "model_version", "replica_id", "outcome", "prompt_tokens", "cached_prompt_tokens", "output_tokens", "discarded_tokens", "resumed_tokens", "started_unix_ms", "ended_unix_ms")
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    CHARGE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    attempt_id: str
    charge_id: str
    request_id: str
    tenant_id: str
    model: str
    model_version: str
    replica_id: str
    outcome: AttemptOutcome
    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    discarded_tokens: int
    resumed_tokens: int
    started_unix_ms: int
    ended_unix_ms: int
    def __init__(self, attempt_id: _Optional[str] = ..., charge_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., replica_id: _Optional[str] = ..., outcome: _Optional[_Union[AttemptOutcome, str]] = ..., prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., discarded_tokens: _Optional[int] = ..., resumed_tokens: _Optional[int] = ..., started_unix_ms: _Optional[int] = ..., ended_unix_ms: _Optional[int] = ...) -> None: ...
