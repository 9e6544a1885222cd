"""Messages of bearlake.stream.v1, generated from stream.proto by generate.py: not to be edited."""
# mypy: disable-error-code="type-arg"
from google.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Form(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORM_UNSPECIFIED: _ClassVar[Form]
    FORM_RECORDS: _ClassVar[Form]
    FORM_RECORD_BATCHES: _ClassVar[Form]
    FORM_ARROW: _ClassVar[Form]
FORM_UNSPECIFIED: Form
FORM_RECORDS: Form
FORM_RECORD_BATCHES: Form
FORM_ARROW: Form

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    offset: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class ArrowRecords(_message.Message):
    __slots__ = ("schema", "record_batch")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    RECORD_BATCH_FIELD_NUMBER: _ClassVar[int]
    schema: bytes
    record_batch: bytes
    def __init__(self, schema: _Optional[bytes] = ..., record_batch: _Optional[bytes] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("records", "record_batches", "arrow")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORD_BATCHES_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    records: Records
    record_batches: bytes
    arrow: ArrowRecords
    def __init__(self, records: _Optional[_Union[Records, _Mapping]] = ..., record_batches: _Optional[bytes] = ..., arrow: _Optional[_Union[ArrowRecords, _Mapping]] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("name", "id", "partition_count", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: bytes
    partition_count: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., id: _Optional[bytes] = ..., partition_count: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateStreamRequest(_message.Message):
    __slots__ = ("name", "partition_count", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition_count: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., partition_count: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DescribeStreamRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PartitionBounds(_message.Message):
    __slots__ = ("partition", "start_offset", "end_offset", "stable_end_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STABLE_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    start_offset: int
    end_offset: int
    stable_end_offset: int
    def __init__(self, partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., stable_end_offset: _Optional[int] = ...) -> None: ...

class StreamDescription(_message.Message):
    __slots__ = ("stream", "partitions")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionBounds]
    def __init__(self, stream: _Optional[_Union[Stream, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionBounds, _Mapping]]] = ...) -> None: ...

class ListStreamsRequest(_message.Message):
    __slots__ = ("prefix", "page_size", "page_token")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_size: int
    page_token: str
    def __init__(self, prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListStreamsResponse(_message.Message):
    __slots__ = ("streams", "next_page_token")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[Stream]
    next_page_token: str
    def __init__(self, streams: _Optional[_Iterable[_Union[Stream, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteStreamRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteStreamResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class ProducerSequence(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "base_sequence")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    base_sequence: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("stream", "partition", "payload", "sequence", "expected_offset")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    payload: Payload
    sequence: ProducerSequence
    expected_offset: int
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ..., sequence: _Optional[_Union[ProducerSequence, _Mapping]] = ..., expected_offset: _Optional[int] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("base_offset", "record_count")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    record_count: int
    def __init__(self, base_offset: _Optional[int] = ..., record_count: _Optional[int] = ...) -> None: ...

class ProduceStreamRequest(_message.Message):
    __slots__ = ("stream", "partition", "payload", "sequence", "expected_offset")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    payload: Payload
    sequence: ProducerSequence
    expected_offset: int
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ..., sequence: _Optional[_Union[ProducerSequence, _Mapping]] = ..., expected_offset: _Optional[int] = ...) -> None: ...

class ProduceStreamResponse(_message.Message):
    __slots__ = ("acknowledged_count", "base_offsets", "drain")
    ACKNOWLEDGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    acknowledged_count: int
    base_offsets: _containers.RepeatedScalarFieldContainer[int]
    drain: Drain
    def __init__(self, acknowledged_count: _Optional[int] = ..., base_offsets: _Optional[_Iterable[int]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("deadline_ms",)
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    deadline_ms: int
    def __init__(self, deadline_ms: _Optional[int] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("stream", "partition")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("stream", "partition", "offset", "timestamp_ms", "earliest", "latest", "tag")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    offset: int
    timestamp_ms: int
    earliest: bool
    latest: bool
    tag: int
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., tag: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("bytes", "messages")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    messages: int
    def __init__(self, bytes: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("form", "unassign", "assign", "seek", "credit")
    FORM_FIELD_NUMBER: _ClassVar[int]
    UNASSIGN_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    form: Form
    unassign: _containers.RepeatedCompositeFieldContainer[Partition]
    assign: _containers.RepeatedCompositeFieldContainer[Position]
    seek: _containers.RepeatedCompositeFieldContainer[Position]
    credit: Credit
    def __init__(self, form: _Optional[_Union[Form, str]] = ..., unassign: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., assign: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., seek: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("stream", "partition", "tag", "start_offset", "end_offset", "next_offset", "payload", "credit_bytes", "error", "drain")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    tag: int
    start_offset: int
    end_offset: int
    next_offset: int
    payload: Payload
    credit_bytes: int
    error: _status_pb2.Status
    drain: Drain
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., tag: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ..., credit_bytes: _Optional[int] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("group", "streams", "form", "from_latest", "session_timeout_ms", "rebalance_timeout_ms", "instance_id", "client_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    FROM_LATEST_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    streams: _containers.RepeatedScalarFieldContainer[str]
    form: Form
    from_latest: bool
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str
    client_id: str
    def __init__(self, group: _Optional[str] = ..., streams: _Optional[_Iterable[str]] = ..., form: _Optional[_Union[Form, str]] = ..., from_latest: _Optional[bool] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("stream", "partition", "offset", "metadata")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    offset: int
    metadata: str
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("tag", "offsets")
    TAG_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    tag: int
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, tag: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("join", "credit", "commit", "released", "seek")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    join: Join
    credit: Credit
    commit: Commit
    released: bool
    seek: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., released: _Optional[bool] = ..., seek: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class Assigned(_message.Message):
    __slots__ = ("member_id", "generation", "positions")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    generation: int
    positions: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, member_id: _Optional[str] = ..., generation: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class Revoked(_message.Message):
    __slots__ = ("deadline_ms",)
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    deadline_ms: int
    def __init__(self, deadline_ms: _Optional[int] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("tag", "error")
    TAG_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tag: int
    error: _status_pb2.Status
    def __init__(self, tag: _Optional[int] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("assigned", "revoked", "records", "committed", "drain")
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    assigned: Assigned
    revoked: Revoked
    records: FetchResponse
    committed: Committed
    drain: Drain
    def __init__(self, assigned: _Optional[_Union[Assigned, _Mapping]] = ..., revoked: _Optional[_Union[Revoked, _Mapping]] = ..., records: _Optional[_Union[FetchResponse, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...
