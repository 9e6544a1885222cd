"""What a route takes and answers with, beside its path: one entry per method and path."""

from collections.abc import Mapping

from bearlake.protocols.rest.openapi.model import (
    FLAG,
    ID,
    INDEX,
    NULLABLE_TEXT,
    TEXT,
    Description,
    Operation,
    Schema,
    header,
    list_of,
    object_of,
    query,
)

V2 = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
WITH_SCHEMA = tuple(f"application/vnd.kafka.{name}.v2+json" for name in ("avro", "jsonschema", "protobuf"))
JSON = "application/json"
ANY = "*/*"

_OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": 2**62}
PARAMETERS: Mapping[str, Schema] = {"partition": INDEX, "broker": INDEX}
"""Schemas of path parameters that are not any text."""

_LOOK = (400, 404, 503)
_WRITE = (400, 403, 404, 408, 409, 413, 415, 422, 503)
_CREATION = ("Closed", "TTL", "Expires-At", "Forked-From", "Fork-Offset", "Fork-Sub-Offset")
_INSTANCE = (400, 403, 404, 408, 409, 413, 415, 422, 503)

_BINARY_RECORD = object_of(key=NULLABLE_TEXT, value=NULLABLE_TEXT, partition=INDEX)
_JSON_RECORD = object_of(key={}, value={}, partition=INDEX)
_PLACE = object_of("topic", "partition", topic=TEXT, partition=INDEX)
_PLACES = {V2: object_of("partitions", partitions=list_of(_PLACE))}
_POSITION = object_of("topic", "partition", "offset", topic=TEXT, partition=INDEX, offset=_OFFSET, metadata=TEXT)
_POSITIONS = {V2: object_of("offsets", offsets=list_of(_POSITION))}
_WITH_SCHEMA_RECORDS = object_of(
    "records",
    key_schema=TEXT,
    key_schema_id=ID,
    value_schema=TEXT,
    value_schema_id=ID,
    records={**list_of(_JSON_RECORD), "minItems": 1},
)
_PRODUCED = {
    BINARY: object_of("records", records={**list_of(_BINARY_RECORD), "minItems": 1}),
    JSON_RECORDS: object_of("records", records={**list_of(_JSON_RECORD), "minItems": 1}),
    **dict.fromkeys(WITH_SCHEMA, _WITH_SCHEMA_RECORDS),
}
_PART = object_of(
    type={"enum": ["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"]},
    schema=TEXT,
    schema_id=ID,
    schema_version=ID,
    subject=TEXT,
    subject_name_strategy={"enum": ["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"]},
    data={},
)
_RECORD = object_of(
    partition_id=INDEX,
    key=_PART,
    value=_PART,
    headers=list_of(object_of("name", name=TEXT, value=TEXT)),
    timestamp={"type": "string", "format": "date-time"},
)
_CONFIG = object_of("name", "value", name=TEXT, value=NULLABLE_TEXT)
_CHANGE = object_of("name", name=TEXT, value=NULLABLE_TEXT, operation={"enum": ["SET", "DELETE"]})
_CONSUMER = object_of(
    name=TEXT,
    format={"enum": ["binary", "json", "avro", "jsonschema", "protobuf"]},
    **{
        "auto.offset.reset": {"enum": ["earliest", "latest", "none"]},
        "auto.commit.enable": {"enum": ["true", "false"]},
        "fetch.min.bytes": INDEX,
        "consumer.request.timeout.ms": INDEX,
    },
)
_SUBSCRIPTION = object_of(topics=list_of(TEXT), topic_pattern=TEXT)

_CLUSTER = "/v3/clusters/{cluster_id}"
_TOPIC = _CLUSTER + "/topics/{topic}"
_GROUP = _CLUSTER + "/consumer-groups/{group}"
_CONSUMER_PATH = "/consumers/{group}/instances/{instance}"


def _looks(*paths: str, kind: str) -> dict[tuple[str, str], Operation]:
    return {("GET", path): Operation((200,), _LOOK, (kind,)) for path in paths}


def _streams(path: str) -> dict[tuple[str, str], Operation]:
    queries = (
        *tuple(query(name, TEXT) for name in ("offset", "cursor")),
        query("live", {"enum": ["long-poll", "sse"]}),
    )
    producer = tuple(header(f"Producer-{name}") for name in ("Id", "Epoch", "Seq"))
    headers = (*producer, header("Stream-Seq"), header("Stream-Closed"))
    body = {JSON: {}, "application/octet-stream": {}, "text/plain": TEXT}
    return {
        ("GET", path): Operation((200, 204), (304, 400, 404, 410, 503), (ANY,), parameters=queries),
        ("HEAD", path): Operation((200,), (*_LOOK, 410)),
        ("POST", path): Operation((200, 204), (*_WRITE, 410), body=body, is_body_required=False, parameters=headers),
    }


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    **_looks("/topics", "/topics/{topic}", "/topics/{topic}/partitions", "/brokers", kind=V2),
    **_looks("/topics/{topic}/partitions/{partition}", kind=V2),
    **_looks("/topics/{topic}/partitions/{partition}/offsets", kind=V2),
    ("POST", "/topics/{topic}"): Operation((200,), _WRITE, (V2,), _PRODUCED),
    ("POST", "/topics/{topic}/partitions/{partition}"): Operation((200,), _WRITE, (V2,), _PRODUCED),
    ("POST", "/consumers/{group}"): Operation((200,), (*_WRITE, 429), (V2,), {V2: _CONSUMER}, False),
    ("HEAD", _CONSUMER_PATH): Operation((204,), (403, 404, 503)),
    ("DELETE", _CONSUMER_PATH): Operation((204,), _INSTANCE),
    **_looks(f"{_CONSUMER_PATH}/subscription", f"{_CONSUMER_PATH}/assignments", kind=V2),
    ("POST", f"{_CONSUMER_PATH}/subscription"): Operation((204,), _INSTANCE, body={V2: _SUBSCRIPTION}),
    ("DELETE", f"{_CONSUMER_PATH}/subscription"): Operation((204,), _INSTANCE),
    ("POST", f"{_CONSUMER_PATH}/assignments"): Operation((204,), _INSTANCE, body=_PLACES),
    ("GET", f"{_CONSUMER_PATH}/records"): Operation(
        (200,),
        (400, 403, 404, 406, 409, 422, 500, 503),
        (BINARY, JSON_RECORDS, *WITH_SCHEMA),
        parameters=(query("timeout", INDEX), query("max_bytes", INDEX)),
    ),
    ("GET", f"{_CONSUMER_PATH}/offsets"): Operation((200,), _INSTANCE, (V2,)),
    ("POST", f"{_CONSUMER_PATH}/offsets"): Operation((200,), _INSTANCE, (V2,), _POSITIONS, False),
    ("POST", f"{_CONSUMER_PATH}/positions"): Operation((204,), _INSTANCE, body=_POSITIONS),
    ("POST", f"{_CONSUMER_PATH}/positions/beginning"): Operation((204,), _INSTANCE, body=_PLACES),
    ("POST", f"{_CONSUMER_PATH}/positions/end"): Operation((204,), _INSTANCE, body=_PLACES),
    **_looks("/v3/clusters", _CLUSTER, f"{_CLUSTER}/brokers", f"{_CLUSTER}/brokers/{{broker}}", kind=JSON),
    **_looks(f"{_CLUSTER}/topics", _TOPIC, f"{_TOPIC}/partitions", f"{_TOPIC}/configs", kind=JSON),
    **_looks(f"{_TOPIC}/partitions/{{partition}}", f"{_TOPIC}/configs/{{config}}", kind=JSON),
    **_looks(f"{_CLUSTER}/consumer-groups", _GROUP, f"{_GROUP}/consumers", f"{_GROUP}/lag-summary", kind=JSON),
    **_looks(f"{_GROUP}/lags", f"{_GROUP}/lags/{{topic}}/partitions/{{partition}}", kind=JSON),
    ("POST", f"{_CLUSTER}/topics"): Operation(
        (200, 201),
        _WRITE,
        (JSON,),
        {
            JSON: object_of(
                "topic_name",
                topic_name=TEXT,
                partitions_count={"type": "integer", "minimum": 1, "maximum": 16},
                configs=list_of(_CONFIG),
                validate_only=FLAG,
            )
        },
    ),
    ("PATCH", _TOPIC): Operation(
        (200,), _WRITE, (JSON,), {JSON: object_of("partitions_count", partitions_count=INDEX)}
    ),
    ("DELETE", _TOPIC): Operation((204,), _WRITE),
    ("PUT", f"{_TOPIC}/configs/{{config}}"): Operation((204,), _WRITE, body={JSON: object_of("value", value=TEXT)}),
    ("DELETE", f"{_TOPIC}/configs/{{config}}"): Operation((204,), _WRITE),
    ("POST", f"{_TOPIC}/configs:alter"): Operation(
        (204,), _WRITE, body={JSON: object_of("data", data=list_of(_CHANGE), validate_only=FLAG)}
    ),
    ("POST", f"{_TOPIC}/records"): Operation((200,), _WRITE, (JSON,), {JSON: _RECORD}),
    ("PUT", "/v1/stream/{name}"): Operation(
        (200, 201),
        _WRITE,
        body={JSON: {}, "application/octet-stream": {}, "text/plain": TEXT},
        is_body_required=False,
        parameters=tuple(header(f"Stream-{name}") for name in _CREATION),
    ),
    ("DELETE", "/v1/stream/{name}"): Operation((204,), (*_LOOK, 409, 410)),
    **_streams("/v1/stream/{name}"),
    **_streams("/v1/stream/{name}/{partition}"),
    ("GET", "/openapi.json"): Operation((200,), (503,), (JSON,)),
    ("GET", "/docs"): Operation((200,), (503,), ("text/html",)),
}
"""Every route."""

DESCRIPTION = Description("Bearlake REST", OPERATIONS, PARAMETERS, (V2, JSON))
"""The REST server's application."""
