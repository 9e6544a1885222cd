"""Bodies of the v2 API, as models: they check the bodies, and describe them in the OpenAPI document.

null counts as absent everywhere. Source: Confluent, "REST Proxy API Reference v2".
"""

from enum import Enum
from typing import Annotated, Any, Generic, TypeVar

from bearlake.protocols.rest.proxy.formats import Format
from bearlake.serving.http.models import Meta, Model, OpenModel, Raw, Reader, field
from bearlake.serving.http.queries import Query

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
LIST_COUNT_MAX = 10_000
PATTERN_LENGTH_MAX = 1_000
NAME_PATTERN = r"^[A-Za-z0-9._-]{1,249}(?!\n)$"
"""A name. (Without the look-ahead, Python's `$` takes a newline at the end.)"""

Index = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Id = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Name = Annotated[str, Meta(pattern=NAME_PATTERN, description="1 to 249 characters of a-z A-Z 0-9 . _ -")]

R = TypeVar("R")


# -- POST /topics/{topic}, POST /topics/{topic}/partitions/{partition} -------------------------------------------


class BinaryPair(Model):
    """A record as base64."""

    key: bytes | None = None
    value: bytes | None = None


class BinaryRecord(BinaryPair):
    """A record as base64, for a partition of the client's choice if it names one."""

    partition: Index | None = None


class JsonPair(Model):
    """A record of JSON values, or of values with schemas."""

    key: Any = None
    value: Any = None


class JsonRecord(JsonPair):
    """A record of JSON values, or of values with schemas, for a partition of the client's choice if it names one."""

    partition: Index | None = None


class TextPair(Model):
    """A record of values with schemas, as JSON texts: only child processes parse them. Empty texts are absent values."""

    key: Raw = Raw()
    value: Raw = Raw()


class TextRecord(TextPair):
    """A record of values with schemas, for a partition of the client's choice if it names one."""

    partition: Index | None = None


Limit = Annotated[int, Meta(ge=-1, le=10**18, description="a number from 0, or -1 for the default")]


class Produce(Model, Generic[R]):
    """Records to append. Formats without schemas ignore the fields of schemas."""

    records: Annotated[list[R], Meta(min_length=1)]
    key_schema: str | None = None
    key_schema_id: Id | None = None
    value_schema: str | None = None
    value_schema_id: Id | None = None


class Placed(Model):
    """The result of a record: its partition and offset, or why it was not written."""

    partition: int
    offset: int | None
    error_code: Annotated[int | None, Meta(description="1: not retriable, 2: retriable")]
    error: str | None


class Produced(Model):
    """The results of the records, in order."""

    offsets: list[Placed]
    key_schema_id: int | None
    value_schema_id: int | None


# -- /consumers/… ------------------------------------------------------------------------------------------------

Number = Annotated[int, Meta(ge=-1, le=INT64_MAX)] | Annotated[str, Meta(pattern=r"^(-1|[0-9]{1,18})(?!\n)$")]
"""A number, or its text; -1: the default."""
Count = Annotated[Number | None, Meta(description="a number from 0, or -1 for the default")]


class Spelled(Enum):
    """An enumeration whose values clients may write in upper case."""

    @classmethod
    def _missing_(cls, value: object) -> "Spelled | None":
        return next((option for option in cls if isinstance(value, str) and option.value == value.lower()), None)


class Reset(Spelled):
    """Where a consumer starts that has no committed offset."""

    EARLIEST = "earliest"
    SMALLEST = "smallest"
    LATEST = "latest"
    LARGEST = "largest"
    NONE = "none"


class Flag(Spelled):
    """A boolean as text."""

    TRUE = "true"
    FALSE = "false"


class NewConsumer(Model):
    """A new consumer instance; its configs may be JSON values or their texts."""

    name: Name | None = None
    id: Name | None = None
    format: Format | None = None
    reset: Reset | None = field(name="auto.offset.reset", default=None)
    auto_commit: Annotated[bool | Flag | None, Meta(description="true or false")] = field(
        name="auto.commit.enable", default=None
    )
    fetch_bytes_min: Count = field(name="fetch.min.bytes", default=None)
    wait_ms: Count = field(name="consumer.request.timeout.ms", default=None)


class Subscription(OpenModel):
    """Topics, or a pattern of their names."""

    topics: Annotated[list[Name], Meta(min_length=1, max_length=LIST_COUNT_MAX)] | None = None
    topic_pattern: Annotated[str, Meta(min_length=1, max_length=PATTERN_LENGTH_MAX)] | None = None


class Place(OpenModel):
    """A partition."""

    topic: Name
    partition: Index


class Places(OpenModel):
    """Partitions."""

    partitions: Annotated[list[Place], Meta(max_length=LIST_COUNT_MAX)]


class Position(Place):
    """An offset of a partition, with the text of its commit."""

    offset: Annotated[int, Meta(ge=0, le=INT64_MAX - 1)]
    metadata: str | None = None


class Positions(OpenModel):
    """Offsets."""

    offsets: Annotated[list[Position], Meta(max_length=LIST_COUNT_MAX)]


# -- readers -----------------------------------------------------------------------------------------------------

BINARY: Reader[Produce[BinaryRecord]] = Reader(Produce[BinaryRecord])
BINARY_PAIRS: Reader[Produce[BinaryPair]] = Reader(Produce[BinaryPair])
JSON: Reader[Produce[JsonRecord]] = Reader(Produce[JsonRecord])
JSON_PAIRS: Reader[Produce[JsonPair]] = Reader(Produce[JsonPair])
TEXTS: Reader[Produce[TextRecord]] = Reader(Produce[TextRecord])
TEXT_PAIRS: Reader[Produce[TextPair]] = Reader(Produce[TextPair])


class ReadLimits(OpenModel):
    """Query parameters of a read."""

    timeout: Limit = -1
    """Longest wait (ms)."""
    max_bytes: Limit = -1
    """Largest size of the answer (bytes)."""


READ_LIMITS = Query(ReadLimits)
NEW_CONSUMER = Reader[NewConsumer](NewConsumer)
SUBSCRIPTION = Reader[Subscription](Subscription)
PLACES = Reader[Places](Places)
POSITIONS = Reader[Positions](Positions)
