"""Bodies of the HTTP APIs as models: REST, schema registry, admin; streamed records of v3; values in a request's headers and query."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from bearlake.errors import Invalid
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import formats, models, produce_routes
from bearlake.protocols.rest.registry import models as registry
from bearlake.protocols.rest.tailing import lifetimes, state
from bearlake.protocols.rest.v3 import models as v3
from bearlake.protocols.rest.v3 import record_stream
from bearlake.serving.admin import models as admin
from bearlake.serving.http.models import ANY, Reader
from bearlake.streams.schemas import names, rules
from fuzz.mutation import change_json
from fuzz.target import Choices, Target

AA = base64.b64encode(b"value").decode()
PARTS = ({"type": "BINARY", "data": AA}, {"type": "JSON", "data": {"a": [1, None]}}, {"schema_id": 1, "data": 5})
RECORD = {
    "partition_id": 0,
    "key": PARTS[0],
    "value": PARTS[1],
    "headers": [{"name": "h", "value": AA}, {"name": "n"}],
    "timestamp": "2026-01-01T00:00:00Z",
}
READERS: tuple[tuple[Reader[Any], Any], ...] = (
    (models.BINARY, {"records": [{"key": AA, "value": AA, "partition": 0}, {"value": None}]}),
    (models.BINARY_PAIRS, {"records": [{"key": AA, "value": AA}]}),
    (models.JSON, {"records": [{"key": 1, "value": {"a": [1.5, "x"]}, "partition": 1}]}),
    (models.JSON_PAIRS, {"records": [{"value": [None, True]}]}),
    (models.TEXTS, {"value_schema": '"int"', "records": [{"value": 5, "partition": 0}, {"value": {"a": 1}}]}),
    (models.TEXT_PAIRS, {"value_schema_id": 3, "key_schema_id": 4, "records": [{"key": "k", "value": 5}]}),
    (models.NEW_CONSUMER, {"name": "c", "format": "binary", "auto.offset.reset": "earliest", "fetch.min.bytes": "5"}),
    (models.SUBSCRIPTION, {"topics": ["a", "b"], "topic_pattern": "a.*"}),
    (models.PLACES, {"partitions": [{"topic": "t", "partition": 0}]}),
    (models.POSITIONS, {"offsets": [{"topic": "t", "partition": 0, "offset": 5, "metadata": "m"}]}),
    (v3.NEW_TOPIC, {"topic_name": "t", "partitions_count": 3, "configs": [{"name": "retention.ms", "value": 5}]}),
    (v3.GROWTH, {"partitions_count": 3}),
    (v3.NEW_VALUE, {"value": "5"}),
    (v3.CHANGES, {"data": [{"name": "a", "operation": "DELETE"}, {"name": "b", "value": True}]}),
    (v3.RECORD, RECORD),
    (
        registry.DRAFT,
        {"schema": '"int"', "schemaType": "avro", "references": [{"name": "a", "subject": "s", "version": 1}]},
    ),
    (registry.CONFIG, {"compatibility": "full", "alias": None, "defaultMetadata": {"properties": {"a": "b"}}}),
    (registry.MODE, {"mode": "IMPORT"}),
    (admin.NEW_STREAM, {"name": "t", "partition_count": 1, "configs": {"retention.ms": "5"}}),
    (admin.STREAM_CHANGE, {"name": "t", "partition_count": 2, "configs": {"a": None}}),
    (admin.STREAM_TO_DELETE, {"name": "t"}),
    (admin.ITEMS, {"items": [{"name": "a"}, 5]}),
    (ANY, {"a": [1, 1.5, None, True, "x", {}]}),
)


def body(data: bytes) -> object:
    """Read a body as one of the models, and check what models leave to their handlers."""
    choices = Choices(data)
    at = choices.byte() % len(READERS)
    reader = READERS[at][0]
    found = reader.read(choices.rest)
    if isinstance(found, v3.Record):
        _record(choices.rest)
    if isinstance(found, registry.Config):
        rules.updated(
            None,
            {"compatibility": "FULL", "defaultMetadata": found.default_metadata or None}
            if isinstance(found.default_metadata, dict)
            else {},
            10_000,
        )
    if isinstance(found, models.Produce) and reader is models.JSON:
        [formats.json_in(record.value, "value") for record in found.records]
    return at, type(found)


def _record(text: bytes) -> None:
    """Parse a record as of a streamed body, whose text is decoded first."""
    try:
        item = json.loads(text.decode())
    except UnicodeDecodeError:
        return
    record_stream.parse_item(item, 0)


def _body_seeds() -> list[bytes]:
    return [bytes([at]) + json.dumps(value).encode() for at, (_, value) in enumerate(READERS)]


def _body_json(random: Any, data: bytearray) -> None:
    rest = data[1:]
    change_json(random, rest)
    data[1:] = rest


def stream(data: bytes) -> object:
    """Read records from a streamed body, in pieces."""
    choices = Choices(data)
    objects = record_stream.Objects(1024, 1024)
    pieces, rest = choices.byte() % 40 + 1, choices.rest
    count = 0
    for start in range(0, len(rest), pieces):
        for item in objects.feed(rest[start : start + pieces]):
            record_stream.parse_item(item, 0)
            count += 1
    objects.end()
    return count


def value(data: bytes) -> object:
    """Read a value of a key, header, path or query."""
    choices = Choices(data)
    at = choices.byte() % len(VALUES)
    text = choices.rest.decode("utf-8", "surrogateescape")  # as aiohttp decodes headers
    VALUES[at](text)
    return at


def _json_value(text: str) -> object:
    return formats.json_in(json.loads(text), "value")


VALUES: tuple[Callable[[str], object], ...] = (
    lambda text: formats.base64_in(text, "value"),
    _json_value,
    produce_routes.parse_index,
    lifetimes.parse_time,
    state.parse_token,
    lambda text: state.whole_number(text, "Header"),
    names.parse,
    names.parse_prefix,
    names.parse_version,
    state.media_type,
    lambda text: names.within(text, "context"),
)
VALUE_SEEDS = (
    AA,
    '{"a": [1]}',
    "5",
    "2026-01-01T00:00:00.5+01:00",
    "00000000000000000005",
    "5",
    ":.c:subject",
    ":*:s",
    "latest",
    "text/plain; charset=utf-8",
    "s",
)


def _value_seeds() -> Iterator[bytes]:
    for at, text in enumerate(VALUE_SEEDS):
        yield bytes([at]) + text.encode()


TARGETS = [
    Target(
        name="HTTP bodies",
        seeds=_body_seeds,
        run=body,
        errors=(Invalid, Problem),
        change=_body_json,
        change_share=0.7,
        memory_factor=200,
        share=2,
        short_inputs=2000,
    ),
    Target(
        name="HTTP record streams",
        seeds=lambda: [bytes([size]) + json.dumps(RECORD).encode() * 2 for size in (5, 39)],
        run=stream,
        errors=(Invalid, Problem),
        tokens=(b"{", b"}", b"[", b"]", b'"', b"\\", b'"timestamp":', b"-", b"1e9"),
        bytes_max=2048,
        memory_factor=100,
        processor_s=0.1,
        short_inputs=500,
    ),
    Target(
        name="HTTP values",
        seeds=lambda: list(_value_seeds()),
        run=value,
        errors=(Invalid, Problem, json.JSONDecodeError),
        bytes_max=300,
        share=0.5,
    ),
]
