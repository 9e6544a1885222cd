"""Bodies of the v3 API, as models: they check the bodies, and describe them in the OpenAPI document.

null counts as absent everywhere; unknown fields are ignored. Source: Confluent, "REST Proxy API Reference v3".
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from bearlake.serving.http.models import Meta, OpenModel, Reader

INT32_MAX = 2**31 - 1

Index = Annotated[int, Meta(ge=0, le=INT32_MAX)]
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
    configs: list[NewConfig] | None = None
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

    data: list[Change] | None = None
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


# -- readers -----------------------------------------------------------------------------------------------------

NEW_TOPIC = Reader[NewTopic](NewTopic)
GROWTH = Reader[Growth](Growth)
NEW_VALUE = Reader[NewValue](NewValue)
CHANGES = Reader[Changes](Changes)
RECORD = Reader[Record](Record)
