"""What a route takes and answers with, beside its path: one entry per method and path."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

V2 = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
JSON = "application/json"
ANY = "*/*"

Schema = Mapping[str, Any]
"""A JSON schema (Any: as it stands in the document)."""


class Operation(NamedTuple):
    """A route's statuses, bodies by content type, and parameters beside those of the path."""

    done: tuple[int, ...]
    failed: tuple[int, ...]
    answers: tuple[str, ...] = ()
    body: Mapping[str, Schema] | None = None
    is_body_required: bool = True
    parameters: tuple[Schema, ...] = ()


CODES = {status.value: status.phrase for status in HTTPStatus}
"""Descriptions of statuses."""
_TEXT: Schema = {"type": "string"}
_INDEX: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": 2**62}
_FLAG: Schema = {"type": "boolean"}
PARAMETERS: Mapping[str, Schema] = {"partition": _INDEX, "broker": _INDEX}
"""Schemas of path parameters that are not any text."""

_LOOK = (400, 404, 503)
_WRITE = (400, 403, 404, 408, 409, 413, 415, 422, 503)
_CREATION = ("Closed", "TTL", "Expires-At", "Forked-From", "Fork-Offset", "Fork-Sub-Offset")
_INSTANCE = (400, 404, 408, 409, 413, 415, 422, 503)


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _header(name: str) -> Schema:
    return {"name": name, "in": "header", "required": False, "schema": _TEXT}


_NULLABLE_TEXT: Schema = {"type": ["string", "null"]}
_BINARY_RECORD = _object(key=_NULLABLE_TEXT, value=_NULLABLE_TEXT, partition=_INDEX)
_JSON_RECORD = _object(key={}, value={}, partition=_INDEX)
_PLACE = _object("topic", "partition", topic=_TEXT, partition=_INDEX)
_PLACES = {V2: _object("partitions", partitions=_list(_PLACE))}
_POSITION = _object("topic", "partition", "offset", topic=_TEXT, partition=_INDEX, offset=_OFFSET, metadata=_TEXT)
_POSITIONS = {V2: _object("offsets", offsets=_list(_POSITION))}
_PRODUCED = {
    BINARY: _object("records", records={**_list(_BINARY_RECORD), "minItems": 1}),
    JSON_RECORDS: _object("records", records={**_list(_JSON_RECORD), "minItems": 1}),
}
_PART = _object("type", "data", type={"enum": ["BINARY", "JSON", "STRING"]}, data={})
_RECORD = _object(
    partition_id=_INDEX,
    key=_PART,
    value=_PART,
    headers=_list(_object("name", name=_TEXT, value=_TEXT)),
    timestamp={"type": "string", "format": "date-time"},
)
_CONFIG = _object("name", "value", name=_TEXT, value=_NULLABLE_TEXT)
_CHANGE = _object("name", name=_TEXT, value=_NULLABLE_TEXT, operation={"enum": ["SET", "DELETE"]})
_CONSUMER = _object(
    name=_TEXT,
    format={"enum": ["binary", "json"]},
    **{
        "auto.offset.reset": {"enum": ["earliest", "latest", "none"]},
        "auto.commit.enable": {"enum": ["true", "false"]},
        "fetch.min.bytes": _INDEX,
        "consumer.request.timeout.ms": _INDEX,
    },
)
_SUBSCRIPTION = _object(topics=_list(_TEXT), topic_pattern=_TEXT)

_CLUSTER = "/v3/clusters/{cluster_id}"
_TOPIC = _CLUSTER + "/topics/{topic}"
_GROUP = _CLUSTER + "/consumer-groups/{group}"
_CONSUMER_PATH = "/consumers/{group}/instances/{instance}"


def _looks(*paths: str, kind: str) -> dict[tuple[str, str], Operation]:
    return {("GET", path): Operation((200,), _LOOK, (kind,)) for path in paths}


def _streams(path: str) -> dict[tuple[str, str], Operation]:
    query = (
        *tuple(_query(name, _TEXT) for name in ("offset", "cursor")),
        _query("live", {"enum": ["long-poll", "sse"]}),
    )
    producer = tuple(_header(f"Producer-{name}") for name in ("Id", "Epoch", "Seq"))
    headers = (*producer, _header("Stream-Seq"), _header("Stream-Closed"))
    body = {JSON: {}, "application/octet-stream": {}, "text/plain": _TEXT}
    return {
        ("GET", path): Operation((200, 204), (304, 400, 404, 410, 503), (ANY,), parameters=query),
        ("HEAD", path): Operation((200,), (*_LOOK, 410)),
        ("POST", path): Operation((200, 204), (*_WRITE, 410), body=body, is_body_required=False, parameters=headers),
    }


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    **_looks("/topics", "/topics/{topic}", "/topics/{topic}/partitions", "/brokers", kind=V2),
    **_looks("/topics/{topic}/partitions/{partition}", kind=V2),
    **_looks("/topics/{topic}/partitions/{partition}/offsets", kind=V2),
    ("POST", "/topics/{topic}"): Operation((200,), _WRITE, (V2,), _PRODUCED),
    ("POST", "/topics/{topic}/partitions/{partition}"): Operation((200,), _WRITE, (V2,), _PRODUCED),
    ("POST", "/consumers/{group}"): Operation((200, 307), (*_WRITE, 429), (V2,), {V2: _CONSUMER}, False),
    ("DELETE", _CONSUMER_PATH): Operation((204,), _INSTANCE),
    **_looks(f"{_CONSUMER_PATH}/subscription", f"{_CONSUMER_PATH}/assignments", kind=V2),
    ("POST", f"{_CONSUMER_PATH}/subscription"): Operation((204,), _INSTANCE, body={V2: _SUBSCRIPTION}),
    ("DELETE", f"{_CONSUMER_PATH}/subscription"): Operation((204,), _INSTANCE),
    ("POST", f"{_CONSUMER_PATH}/assignments"): Operation((204,), _INSTANCE, body=_PLACES),
    ("GET", f"{_CONSUMER_PATH}/records"): Operation(
        (200,),
        (400, 404, 406, 409, 422, 500, 503),
        (BINARY, JSON_RECORDS),
        parameters=(_query("timeout", _INDEX), _query("max_bytes", _INDEX)),
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
            JSON: _object(
                "topic_name",
                topic_name=_TEXT,
                partitions_count={"type": "integer", "minimum": 1, "maximum": 16},
                configs=_list(_CONFIG),
                validate_only=_FLAG,
            )
        },
    ),
    ("PATCH", _TOPIC): Operation((200,), _WRITE, (JSON,), {JSON: _object("partitions_count", partitions_count=_INDEX)}),
    ("DELETE", _TOPIC): Operation((204,), _WRITE),
    ("PUT", f"{_TOPIC}/configs/{{config}}"): Operation((204,), _WRITE, body={JSON: _object("value", value=_TEXT)}),
    ("DELETE", f"{_TOPIC}/configs/{{config}}"): Operation((204,), _WRITE),
    ("POST", f"{_TOPIC}/configs:alter"): Operation(
        (204,), _WRITE, body={JSON: _object("data", data=_list(_CHANGE), validate_only=_FLAG)}
    ),
    ("POST", f"{_TOPIC}/records"): Operation((200,), _WRITE, (JSON,), {JSON: _RECORD}),
    ("PUT", "/v1/stream/{name}"): Operation(
        (200, 201),
        _WRITE,
        body={JSON: {}, "application/octet-stream": {}, "text/plain": _TEXT},
        is_body_required=False,
        parameters=tuple(_header(f"Stream-{name}") for name in _CREATION),
    ),
    ("DELETE", "/v1/stream/{name}"): Operation((204,), (*_LOOK, 409, 410)),
    **_streams("/v1/stream/{name}"),
    **_streams("/v1/stream/{name}/{partition}"),
    ("GET", "/openapi.json"): Operation((200,), (503,), (JSON,)),
    ("GET", "/docs"): Operation((200,), (503,), ("text/html",)),
}
"""Every route."""
