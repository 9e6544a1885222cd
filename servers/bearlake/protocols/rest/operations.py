"""The requests and responses of all routes: one entry per method and path."""

from collections.abc import Mapping

from bearlake.protocols.rest.problems import Error
from bearlake.protocols.rest.proxy import models as v2
from bearlake.protocols.rest.v3 import models as v3
from bearlake.serving.http.openapi.model import INDEX, TEXT, Description, Operation, Schema, header, query

V2 = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
WITH_SCHEMA = tuple(f"application/vnd.kafka.{name}.v2+json" for name in ("avro", "jsonschema", "protobuf"))
JSON = "application/json"
ANY = "*/*"

PARAMETERS: Mapping[str, Schema] = {"partition": INDEX, "broker": INDEX}
"""Schemas of path parameters that do not accept every text."""

_LOOK = (400, 404, 429, 503)
_WRITE = (400, 403, 404, 408, 409, 413, 415, 422, 429, 503)
_CREATION = ("Closed", "TTL", "Expires-At", "Forked-From", "Fork-Offset", "Fork-Sub-Offset")
_INSTANCE = (400, 403, 404, 408, 409, 413, 415, 422, 429, 503)

_JSON_BODY = v2.Produce[v2.JsonRecord]
_JSON_PAIRS = v2.Produce[v2.JsonPair]
_TO_TOPIC = {
    BINARY: v2.Produce[v2.BinaryRecord],
    JSON_RECORDS: _JSON_BODY,
    **dict.fromkeys(WITH_SCHEMA, _JSON_BODY),
}
_TO_PARTITION = {
    BINARY: v2.Produce[v2.BinaryPair],
    JSON_RECORDS: _JSON_PAIRS,
    **dict.fromkeys(WITH_SCHEMA, _JSON_PAIRS),
}
_PLACES = {V2: v2.Places}
_POSITIONS = {V2: v2.Positions}

_CLUSTER = "/v3/clusters/{cluster_id}"
_TOPIC = _CLUSTER + "/topics/{topic}"
_GROUP = _CLUSTER + "/consumer-groups/{group}"
_SHARE_GROUP = _CLUSTER + "/share-groups/{group}"
_CONSUMER_PATH = "/consumers/{group}/instances/{instance}"


def _lookups(*paths: str, kind: str) -> dict[tuple[str, str], Operation]:
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
        ("GET", path): Operation((200, 204), (304, 400, 404, 410, 429, 503), (ANY,), parameters=queries),
        ("HEAD", path): Operation((200,), (*_LOOK, 410)),
        ("POST", path): Operation((200, 204), (*_WRITE, 410), body=body, is_body_required=False, parameters=headers),
    }


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    **_lookups("/topics", "/topics/{topic}", "/topics/{topic}/partitions", "/brokers", kind=V2),
    **_lookups("/topics/{topic}/partitions/{partition}", kind=V2),
    **_lookups("/topics/{topic}/partitions/{partition}/offsets", kind=V2),
    ("POST", "/topics/{topic}"): Operation((200,), _WRITE, (V2,), _TO_TOPIC, answer=v2.Produced),
    ("POST", "/topics/{topic}/partitions/{partition}"): Operation(
        (200,), _WRITE, (V2,), _TO_PARTITION, answer=v2.Produced
    ),
    ("POST", "/consumers/{group}"): Operation((200,), _WRITE, (V2,), {V2: v2.NewConsumer}, False),
    ("HEAD", _CONSUMER_PATH): Operation((204,), (403, 404, 429, 503)),
    ("DELETE", _CONSUMER_PATH): Operation((204,), _INSTANCE),
    **_lookups(f"{_CONSUMER_PATH}/subscription", f"{_CONSUMER_PATH}/assignments", kind=V2),
    ("POST", f"{_CONSUMER_PATH}/subscription"): Operation((204,), _INSTANCE, body={V2: v2.Subscription}),
    ("DELETE", f"{_CONSUMER_PATH}/subscription"): Operation((204,), _INSTANCE),
    ("POST", f"{_CONSUMER_PATH}/assignments"): Operation((204,), _INSTANCE, body=_PLACES),
    ("GET", f"{_CONSUMER_PATH}/records"): Operation(
        (200,),
        (400, 403, 404, 406, 409, 422, 429, 500, 503),
        (BINARY, JSON_RECORDS, *WITH_SCHEMA),
        parameters=v2.READ_LIMITS.parameters(),
    ),
    ("GET", f"{_CONSUMER_PATH}/offsets"): Operation((200,), _INSTANCE, (V2,)),
    ("POST", f"{_CONSUMER_PATH}/offsets"): Operation((200,), _INSTANCE, (V2,), _POSITIONS, False),
    ("POST", f"{_CONSUMER_PATH}/positions"): Operation((204,), _INSTANCE, body=_POSITIONS),
    ("POST", f"{_CONSUMER_PATH}/positions/beginning"): Operation((204,), _INSTANCE, body=_PLACES),
    ("POST", f"{_CONSUMER_PATH}/positions/end"): Operation((204,), _INSTANCE, body=_PLACES),
    **_lookups("/v3/clusters", _CLUSTER, f"{_CLUSTER}/brokers", f"{_CLUSTER}/brokers/{{broker}}", kind=JSON),
    **_lookups(f"{_CLUSTER}/topics", _TOPIC, f"{_TOPIC}/partitions", f"{_TOPIC}/configs", kind=JSON),
    **_lookups(f"{_TOPIC}/partitions/{{partition}}", f"{_TOPIC}/configs/{{config}}", kind=JSON),
    **_lookups(f"{_CLUSTER}/consumer-groups", _GROUP, f"{_GROUP}/consumers", f"{_GROUP}/lag-summary", kind=JSON),
    **_lookups(f"{_GROUP}/lags", f"{_GROUP}/lags/{{topic}}/partitions/{{partition}}", kind=JSON),
    **_lookups(f"{_CLUSTER}/share-groups", _SHARE_GROUP, f"{_SHARE_GROUP}/consumers", kind=JSON),
    **_lookups(f"{_SHARE_GROUP}/lags", kind=JSON),
    **_lookups(f"{_CLUSTER}/subscriptions", f"{_TOPIC}/subscriptions/{{subscription}}/lags", kind=JSON),
    ("POST", f"{_CLUSTER}/topics"): Operation(
        (200, 201),
        _WRITE,
        (JSON,),
        {JSON: v3.NewTopic},
    ),
    ("PATCH", _TOPIC): Operation((200,), _WRITE, (JSON,), {JSON: v3.Growth}),
    ("DELETE", _TOPIC): Operation((204,), _WRITE),
    ("PUT", f"{_TOPIC}/configs/{{config}}"): Operation((204,), _WRITE, body={JSON: v3.NewValue}),
    ("DELETE", f"{_TOPIC}/configs/{{config}}"): Operation((204,), _WRITE),
    ("POST", f"{_TOPIC}/configs:alter"): Operation((204,), _WRITE, body={JSON: v3.Changes}),
    ("POST", f"{_TOPIC}/records"): Operation((200,), _WRITE, (JSON,), {JSON: v3.Record}),
    ("POST", f"{_TOPIC}/records:read"): Operation((200,), (*_WRITE, 410), (JSON,), {JSON: v3.Reading}, False),
    ("DELETE", _GROUP): Operation((204,), _WRITE),
    ("DELETE", _SHARE_GROUP): Operation((204,), _WRITE),
    ("POST", f"{_GROUP}/offsets:reset"): Operation((200,), _WRITE, (JSON,), {JSON: v3.Reset}),
    ("POST", f"{_SHARE_GROUP}/offsets:reset"): Operation((200,), _WRITE, (JSON,), {JSON: v3.ShareReset}),
    ("POST", f"{_TOPIC}/subscriptions/{{subscription}}/offsets:reset"): Operation(
        (200,), _WRITE, (JSON,), {JSON: v3.SubscriptionReset}
    ),
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
    ("GET", "/openapi.json"): Operation((200,), (429, 503), (JSON,)),
    ("GET", "/docs"): Operation((200,), (429, 503), ("text/html",)),
}
"""Every route."""

DESCRIPTION = Description("Bearlake REST", OPERATIONS, PARAMETERS, (V2, JSON), Error)
"""What the REST server's OpenAPI document says beyond the docstrings of its handlers."""
