"""Bodies of the v3 API, as models: they check the bodies, and describe them in the OpenAPI document.

null counts as absent everywhere; unknown fields are ignored. Source: Confluent, "REST Proxy API Reference v3".
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from bearlake.serving.http.models import Meta, OpenModel, Reader

INT32_MAX = 2**31 - 1
LIST_COUNT_MAX = 10_000
"""Items of a list in a request: configs, partitions, positions."""

Index = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Indexes = Annotated[list[Index], Meta(max_length=LIST_COUNT_MAX)]
Count = Annotated[int, Meta(ge=1, le=INT32_MAX)]
ConfigValue = Annotated[str | int | float | bool, Meta(description="text")]


# -- topics and their configs ------------------------------------------------------------------------------------


class NewConfig(OpenModel):
    """A config of a new topic; without a value it keeps its default."""

    name: str
    value: ConfigValue | None = None


class NewTopic(OpenModel):
    """A topic to create."""

    topic_name: str
    partitions_count: Count | None = None
    configs: Annotated[list[NewConfig], Meta(max_length=LIST_COUNT_MAX)] | None = None
    validate_only: bool | None = None


class Growth(OpenModel):
    """More partitions."""

    partitions_count: Count


class NewValue(OpenModel):
    """A config's value."""

    value: ConfigValue


class Change(OpenModel):
    """A config to set, or to give its default."""

    name: str
    value: ConfigValue | None = None
    operation: Literal["SET", "DELETE"] | None = None


class Changes(OpenModel):
    """Configs to change, all or none."""

    data: Annotated[list[Change], Meta(max_length=LIST_COUNT_MAX)] | None = None
    validate_only: bool | None = None


# -- records -----------------------------------------------------------------------------------------------------


class Part(OpenModel):
    """A key or value: plain data, or data with a schema."""

    type: Literal["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"] | None = None
    schema: str | None = None
    schema_id: Count | None = None
    schema_version: Annotated[int | Literal["latest"], Meta(description="a number from 1, -1 or latest")] | None = None
    subject: str | None = None
    subject_name_strategy: Literal["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"] | None = None
    data: Any = None


class Header(OpenModel):
    """A header of a record; its value is base64."""

    name: str
    value: bytes | None = None


class Record(OpenModel):
    """A record to append."""

    partition_id: Index | None = None
    key: Part | None = None
    value: Part | None = None
    headers: list[Header] | None = None
    timestamp: Annotated[datetime, Meta(tz=True)] | None = None


READ_PARTITION_COUNT_MAX = 1_000
"""Partitions of one request to read."""
READ_RECORD_COUNT = 100
"""Records of one answer, unless the request names another number."""
READ_BYTES = 1024 * 1024
"""Bytes of keys and values in one answer, besides a single larger record, unless the request names another number."""

Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, Meta(ge=0, le=2**62)]


class Position(OpenModel):
    """Where to read a partition."""

    partition_id: Index
    offset: Offset


class Reading(OpenModel):
    """Which records to read: from positions, or from a start of some partitions (default: all)."""

    positions: Annotated[list[Position], Meta(max_length=LIST_COUNT_MAX)] | None = None
    partition_ids: Indexes | None = None
    start: Literal["latest", "earliest", "last", "timestamp"] | None = None
    """`latest` by default."""
    timestamp_ms: Milliseconds | None = None
    record_count_max: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    """`READ_RECORD_COUNT` by default."""
    bytes_max: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """`READ_BYTES` by default."""
    wait_ms: Annotated[int, Meta(ge=0, le=30_000)] | None = None
    """0 by default."""


class Reset(OpenModel):
    """Where to move a group's offsets in a topic, in some partitions (default: all)."""

    topic_name: str
    to: Literal["earliest", "latest", "offset", "shift", "timestamp"]
    partition_ids: Indexes | None = None
    offset: Offset | None = None
    shift: Annotated[int, Meta(ge=-(2**62), le=2**62)] | None = None
    timestamp_ms: Milliseconds | None = None
    validate_only: bool | None = None


class ShareReset(OpenModel):
    """Where to move a share group's offsets in a topic, in some partitions (default: all)."""

    topic_name: str
    to: Literal["earliest", "latest", "offset", "timestamp"]
    partition_ids: Indexes | None = None
    offset: Offset | None = None
    timestamp_ms: Milliseconds | None = None
    validate_only: bool | None = None


class SubscriptionReset(OpenModel):
    """Where to move a subscription in its topic, in some partitions (default: all)."""

    to: Literal["earliest", "latest", "offset", "timestamp"]
    partition_ids: Indexes | None = None
    offset: Offset | None = None
    timestamp_ms: Milliseconds | None = None
    validate_only: bool | None = None


# -- readers -----------------------------------------------------------------------------------------------------

NEW_TOPIC = Reader[NewTopic](NewTopic)
GROWTH = Reader[Growth](Growth)
NEW_VALUE = Reader[NewValue](NewValue)
CHANGES = Reader[Changes](Changes)
RECORD = Reader[Record](Record)
READING = Reader[Reading](Reading)
RESET = Reader[Reset](Reset)
SHARE_RESET = Reader[ShareReset](ShareReset)
SUBSCRIPTION_RESET = Reader[SubscriptionReset](SubscriptionReset)
