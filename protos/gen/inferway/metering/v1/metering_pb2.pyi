from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UsageDimension(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USAGE_DIMENSION_UNSPECIFIED: _ClassVar[UsageDimension]
    USAGE_DIMENSION_TENANT: _ClassVar[UsageDimension]
    USAGE_DIMENSION_MODEL: _ClassVar[UsageDimension]
    USAGE_DIMENSION_DAY: _ClassVar[UsageDimension]
USAGE_DIMENSION_UNSPECIFIED: UsageDimension
USAGE_DIMENSION_TENANT: UsageDimension
USAGE_DIMENSION_MODEL: UsageDimension
USAGE_DIMENSION_DAY: UsageDimension

class ReserveRequest(_message.Message):
    __slots__ = ("charge_id", "tenant_id", "model", "prompt_tokens", "max_output_tokens")
    CHARGE_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    charge_id: str
    tenant_id: str
    model: str
    prompt_tokens: int
    max_output_tokens: int
    def __init__(self, charge_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., model: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., max_output_tokens: _Optional[int] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("remaining_tokens", "remaining_requests")
    REMAINING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    remaining_tokens: int
    remaining_requests: int
    def __init__(self, remaining_tokens: _Optional[int] = ..., remaining_requests: _Optional[int] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("charge_id", "prompt_tokens", "completion_tokens")
    CHARGE_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    charge_id: str
    prompt_tokens: int
    completion_tokens: int
    def __init__(self, charge_id: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("charge_id",)
    CHARGE_ID_FIELD_NUMBER: _ClassVar[int]
    charge_id: str
    def __init__(self, charge_id: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QueryUsageRequest(_message.Message):
    __slots__ = ("group_by", "tenant_id", "model", "from_day", "to_day")
    GROUP_BY_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FROM_DAY_FIELD_NUMBER: _ClassVar[int]
    TO_DAY_FIELD_NUMBER: _ClassVar[int]
    group_by: _containers.RepeatedScalarFieldContainer[UsageDimension]
    tenant_id: str
    model: str
    from_day: str
    to_day: str
    def __init__(self, group_by: _Optional[_Iterable[_Union[UsageDimension, str]]] = ..., tenant_id: _Optional[str] = ..., model: _Optional[str] = ..., from_day: _Optional[str] = ..., to_day: _Optional[str] = ...) -> None: ...

class QueryUsageResponse(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[UsageRow, _Mapping]]] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("tenant_id", "model", "day", "num_requests", "prompt_tokens", "cached_prompt_tokens", "completion_tokens")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DAY_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    model: str
    day: str
    num_requests: int
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int
    def __init__(self, tenant_id: _Optional[str] = ..., model: _Optional[str] = ..., day: _Optional[str] = ..., num_requests: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ...) -> None: ...

class ListRequestsRequest(_message.Message):
    __slots__ = ("tenant_id", "ids", "from_unix_ms", "to_unix_ms", "page_size", "page_token")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    FROM_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    from_unix_ms: int
    to_unix_ms: int
    page_size: int
    page_token: str
    def __init__(self, tenant_id: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., from_unix_ms: _Optional[int] = ..., to_unix_ms: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRequestsResponse(_message.Message):
    __slots__ = ("requests", "next_page_token")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[LedgerRequest]
    next_page_token: str
    def __init__(self, requests: _Optional[_Iterable[_Union[LedgerRequest, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class LedgerRequest(_message.Message):
    __slots__ = ("charge_id", "request_id", "completion_id", "tenant_id", "key_id", "model", "model_version", "outcome", "finish_reason", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "accepted_unix_ms", "sealed_unix_ms", "surface", "error_reason", "attempts")
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
    SURFACE_FIELD_NUMBER: _ClassVar[int]
    ERROR_REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    charge_id: str
    request_id: str
    completion_id: str
    tenant_id: str
    key_id: str
    model: str
    model_version: str
    outcome: str
    finish_reason: str
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int
    accepted_unix_ms: int
    sealed_unix_ms: int
    surface: str
    error_reason: str
    attempts: _containers.RepeatedCompositeFieldContainer[LedgerAttempt]
    def __init__(self, charge_id: _Optional[str] = ..., request_id: _Optional[str] = ..., completion_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., key_id: _Optional[str] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., outcome: _Optional[str] = ..., finish_reason: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., accepted_unix_ms: _Optional[int] = ..., sealed_unix_ms: _Optional[int] = ..., surface: _Optional[str] = ..., error_reason: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[LedgerAttempt, _Mapping]]] = ...) -> None: ...

class LedgerAttempt(_message.Message):
    __slots__ = ("attempt_id", "replica_id", "outcome", "prompt_tokens", "output_tokens", "cached_prompt_tokens", "discarded_tokens", "resumed_tokens")
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    attempt_id: str
    replica_id: str
    outcome: str
    prompt_tokens: int
    output_tokens: int
    cached_prompt_tokens: int
    discarded_tokens: int
    resumed_tokens: int
    def __init__(self, attempt_id: _Optional[str] = ..., replica_id: _Optional[str] = ..., outcome: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., discarded_tokens: _Optional[int] = ..., resumed_tokens: _Optional[int] = ...) -> None: ...

class GetLedgerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLedgerStatusResponse(_message.Message):
    __slots__ = ("producers", "partitions", "num_quarantined", "num_duplicates", "num_conflicts", "num_topic_resets")
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    NUM_DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    NUM_CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOPIC_RESETS_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.RepeatedCompositeFieldContainer[ProducerStatus]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStatus]
    num_quarantined: int
    num_duplicates: int
    num_conflicts: int
    num_topic_resets: int
    def __init__(self, producers: _Optional[_Iterable[_Union[ProducerStatus, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PartitionStatus, _Mapping]]] = ..., num_quarantined: _Optional[int] = ..., num_duplicates: _Optional[int] = ..., num_conflicts: _Optional[int] = ..., num_topic_resets: _Optional[int] = ...) -> None: ...

class ProducerStatus(_message.Message):
    __slots__ = ("producer_id", "watermark", "highest_sequence", "num_missing")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NUM_MISSING_FIELD_NUMBER: _ClassVar[int]
    producer_id: str
    watermark: int
    highest_sequence: int
    num_missing: int
    def __init__(self, producer_id: _Optional[str] = ..., watermark: _Optional[int] = ..., highest_sequence: _Optional[int] = ..., num_missing: _Optional[int] = ...) -> None: ...

class PartitionStatus(_message.Message):
    __slots__ = ("topic", "partition", "topic_id", "next_offset", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: str
    next_offset: int
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[str] = ..., next_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class SetPriceRequest(_message.Message):
    __slots__ = ("model", "currency", "prompt_nano", "cached_prompt_nano", "completion_nano", "effective_unix_ms")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NANO_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_NANO_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_NANO_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    model: str
    currency: str
    prompt_nano: int
    cached_prompt_nano: int
    completion_nano: int
    effective_unix_ms: int
    def __init__(self, model: _Optional[str] = ..., currency: _Optional[str] = ..., prompt_nano: _Optional[int] = ..., cached_prompt_nano: _Optional[int] = ..., completion_nano: _Optional[int] = ..., effective_unix_ms: _Optional[int] = ...) -> None: ...

class SetPriceResponse(_message.Message):
    __slots__ = ("price_version",)
    PRICE_VERSION_FIELD_NUMBER: _ClassVar[int]
    price_version: int
    def __init__(self, price_version: _Optional[int] = ...) -> None: ...

class CreateInvoiceRequest(_message.Message):
    __slots__ = ("tenant_id", "month")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    MONTH_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    month: str
    def __init__(self, tenant_id: _Optional[str] = ..., month: _Optional[str] = ...) -> None: ...

class CreateInvoiceResponse(_message.Message):
    __slots__ = ("invoice_id",)
    INVOICE_ID_FIELD_NUMBER: _ClassVar[int]
    invoice_id: str
    def __init__(self, invoice_id: _Optional[str] = ...) -> None: ...

class ExplainLineRequest(_message.Message):
    __slots__ = ("line_id", "page_token")
    LINE_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    line_id: str
    page_token: str
    def __init__(self, line_id: _Optional[str] = ..., page_token: _Optional[str] = ...) -> None: ...

class ExplainLineResponse(_message.Message):
    __slots__ = ("requests", "next_page_token")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[LedgerRequest]
    next_page_token: str
    def __init__(self, requests: _Optional[_Iterable[_Union[LedgerRequest, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ReconcileRequest(_message.Message):
    __slots__ = ("from_day", "to_day")
    FROM_DAY_FIELD_NUMBER: _ClassVar[int]
    TO_DAY_FIELD_NUMBER: _ClassVar[int]
    from_day: str
    to_day: str
    def __init__(self, from_day: _Optional[str] = ..., to_day: _Optional[str] = ...) -> None: ...

class ReconcileResponse(_message.Message):
    __slots__ = ("mismatches",)
    MISMATCHES_FIELD_NUMBER: _ClassVar[int]
    mismatches: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, mismatches: _Optional[_Iterable[str]] = ...) -> None: ...
