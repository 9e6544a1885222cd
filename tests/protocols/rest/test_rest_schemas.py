"""Embedded formats with schemas: Confluent's deserializers read what REST writes, and the reverse; errors have the proxy's codes.

The serializers are those of the unmodified `confluent-kafka`; they block, so they run in separate threads.
"""

import asyncio
import base64
import json
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from bearlake.errors import Overloaded
from bearlake.streams.schemas import parsing
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.model import SchemaType
from fixtures import schema_registry
from fixtures.rest_server import Answer, RestNode
from fixtures.schema_registry import RegistryNode

with warnings.catch_warnings():  # of the client's own dependencies
    warnings.simplefilter("ignore")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TOPIC = "orders"
CONTEXT = SerializationContext(TOPIC, MessageField.VALUE)
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "raw", "type": "bytes", "default": ""},
        ],
    }
)
JSON = json.dumps(
    {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
)
PROTOBUF = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; string long_note = 2; google.protobuf.Timestamp when = 3; message Line { bytes raw = 1; }
  repeated Line lines = 4; }
message Other { int32 n = 1; }
"""


class Scene(NamedTuple):
    """A REST server and the registry over the same store."""

    rest: RestNode
    registry: RegistryNode

    async def produce(self, kind: str, body: Any, topic: str = TOPIC) -> Answer:
        return await self.rest.post(f"/topics/{topic}", body, kind=kind)

    async def consumer(self, kind: str) -> str:
        config = {"format": kind, "auto.offset.reset": "earliest"}
        made = await self.rest.post(f"/consumers/readers-{kind}", config)
        assert made.status == 200, made.body
        base: str = made.body["base_uri"]
        partitions = {"partitions": [{"topic": TOPIC, "partition": 0}]}
        assert (await self.rest.post(f"{base}/assignments", partitions)).status == 204
        return base

    async def records(self, base: str, kind: str) -> Answer:
        accept = {"Accept": f"application/vnd.kafka.{kind}.v2+json"}
        return await self.rest.get(f"{base}/records?timeout=2000", headers=accept)

    async def read(self, kind: str) -> list[Any]:
        """The values of the topic, read with a format."""
        answer = await self.records(await self.consumer(kind), kind)
        assert answer.status == 200, answer.body
        return [record["value"] for record in answer.body]

    async def raw(self) -> list[bytes | None]:
        """The bytes of the topic's values."""
        return [None if value is None else base64.b64decode(value) for value in await self.read("binary")]

    async def with_client(self, work: Callable[[SchemaRegistryClient], Any]) -> Any:
        def run() -> Any:
            with SchemaRegistryClient({"url": self.registry.url}) as client:
                return work(client)

        return await asyncio.to_thread(run)

    async def reports(self, *objects: Any) -> list[dict[str, Any]]:
        """Produce by the v3 API."""
        path = f"/v3/clusters/{self.rest.member.cluster_id}/topics/{TOPIC}/records"
        body = "".join(json.dumps(object_) for object_ in objects).encode()
        url, headers = self.rest.url + path, {"Content-Type": "application/json"}
        async with self.rest.session.post(url, data=body, headers=headers) as response:
            return [json.loads(line) for line in (await response.read()).split(b"\r\n") if line]


@pytest.fixture
async def scene(rest: RestNode) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as closing:
        await rest.create(TOPIC)
        yield Scene(rest, await schema_registry.started(closing, metadata=rest.metadata))


async def test_avro_of_rest_is_read_by_the_deserializer(scene: Scene) -> None:
    values = [{"id": 1, "note": {"string": "größe"}, "raw": "\u00ff\u0000"}, {"id": 2}, None]
    keys = {"key_schema": '"string"'}
    records = [{"key": f"k{at}", "value": value} for at, value in enumerate(values)]
    answer = await scene.produce("avro", {**keys, "value_schema": AVRO, "records": records})
    octets = await scene.raw()
    found = await scene.with_client(
        lambda client: [AvroDeserializer(client)(octet, CONTEXT) if octet else None for octet in octets]
    )

    assert answer.status == 200, answer.body
    assert answer.body["key_schema_id"] == 1
    assert answer.body["value_schema_id"] == 2
    assert found == [
        {"id": 1, "note": "größe", "raw": b"\xff\x00"},
        {"id": 2, "note": None, "raw": b""},
        None,
    ]
    assert (await scene.registry.get("/subjects")).body == ["orders-key", "orders-value"]


async def test_avro_of_the_serializer_is_read_by_rest(scene: Scene) -> None:
    value = {"id": 7, "note": "x", "raw": b"\x80"}
    octets = await scene.with_client(lambda client: AvroSerializer(client, AVRO)(value, CONTEXT))
    await scene.produce("binary", {"records": [{"value": base64.b64encode(octets).decode()}, {"value": None}]})

    assert await scene.read("avro") == [{"id": 7, "note": {"string": "x"}, "raw": "\u0080"}, None]


async def test_json_schema_values_are_written_and_read(scene: Scene) -> None:
    answer = await scene.produce("jsonschema", {"value_schema": JSON, "records": [{"value": {"id": 1, "ü": 1.5}}]})
    by_client = await scene.with_client(lambda client: JSONSerializer(JSON, client)({"id": 2}, CONTEXT))
    await scene.produce("binary", {"records": [{"value": base64.b64encode(by_client).decode()}]})
    octets = await scene.raw()
    found = await scene.with_client(
        lambda client: [JSONDeserializer(None, schema_registry_client=client)(octet, CONTEXT) for octet in octets]
    )

    assert answer.status == 200, answer.body
    assert found == await scene.read("jsonschema") == [{"id": 1, "ü": 1.5}, {"id": 2}]


async def test_protobuf_values_are_written_and_read(scene: Scene) -> None:
    value = {"id": 5, "long_note": "größe", "when": "2026-01-31T12:00:00Z", "lines": [{"raw": "/w=="}]}
    camel = {"id": "6", "longNote": "x"}
    body = {"value_schema": PROTOBUF, "records": [{"value": value}, {"value": camel}]}
    answer = await scene.produce("protobuf", body)
    order, other = protobuf_messages()

    def read(client: SchemaRegistryClient, octets: list[bytes | None]) -> list[Any]:
        deserialize = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
        return [deserialize(octet, CONTEXT) for octet in octets]

    def write(client: SchemaRegistryClient) -> list[bytes | None]:
        conf = {"use.deprecated.format": False, "auto.register.schemas": False, "use.latest.version": True}
        made = (order(id=8, lines=[order.Line(raw=b"\x01")]), other(n=9))
        return [ProtobufSerializer(type(message), client, conf)(message, CONTEXT) for message in made]

    assert answer.status == 200, answer.body
    octets = await scene.raw()
    first, second = await scene.with_client(lambda client: read(client, octets))
    assert (first.id, first.long_note, first.when.seconds, first.lines[0].raw) == (5, "größe", 1769860800, b"\xff")
    assert (second.id, second.long_note) == (6, "x")
    nested = (
        b"\0" + answer.body["value_schema_id"].to_bytes(4) + b"\x04\0\0" + order.Line(raw=b"\x02").SerializeToString()
    )
    written = [*await scene.with_client(write), nested]
    await scene.produce("binary", {"records": [{"value": base64.b64encode(value).decode()} for value in written]})
    assert await scene.read("protobuf") == [
        {"id": "5", "long_note": "größe", "when": "2026-01-31T12:00:00Z", "lines": [{"raw": "/w=="}]},
        {"id": "6", "long_note": "x", "lines": []},
        {"id": "8", "long_note": "", "lines": [{"raw": "AQ=="}]},
        {"n": 9},
        {"raw": "Ag=="},
    ]


def protobuf_messages() -> tuple[Any, Any]:
    """The classes of the two messages."""
    schema = parsing.compiled(SchemaType.PROTOBUF, PROTOBUF, {})
    pool = DescriptorPool()
    for file in schema.files:
        pool.AddSerializedFile(file)
    order, other = (GetMessageClass(pool.FindMessageTypeByName(name)) for name in ("shop.Order", "shop.Other"))
    return order, other


async def test_a_schema_is_registered_once_and_found_by_its_id(scene: Scene) -> None:
    by_text = [
        (await scene.produce("avro", {"value_schema": AVRO, "records": [{"value": {"id": 1}}]})) for _ in range(2)
    ]
    by_id = await scene.produce("avro", {"value_schema_id": 1, "records": [{"value": {"id": 2}}]})

    assert [answer.body["value_schema_id"] for answer in (*by_text, by_id)] == [1, 1, 1]
    assert (await scene.registry.get("/subjects/orders-value/versions")).body == [1]


async def test_a_schema_with_references_is_used_by_its_id(scene: Scene) -> None:
    await scene.registry.register(
        "item", {"type": "record", "name": "shop.Item", "fields": [{"name": "n", "type": "int"}]}
    )
    basket = {
        "type": "record",
        "name": "Basket",
        "fields": [{"name": "items", "type": {"type": "array", "items": "shop.Item"}}],
    }
    references = [{"name": "shop.Item", "subject": "item", "version": 1}]
    schema_id = await scene.registry.register("basket", basket, references=references)
    value = {"items": [{"n": 1}, {"n": -1}]}
    answer = await scene.produce("avro", {"value_schema_id": schema_id, "records": [{"value": value}]})
    octets = await scene.raw()

    assert answer.status == 200, answer.body
    assert octets == [b"\0" + schema_id.to_bytes(4) + b"\x04\x02\x01\x00"]
    assert await scene.read("avro") == [value]


@pytest.mark.parametrize(
    ("kind", "body", "expected", "words"),
    [
        ("avro", {"value_schema": '"int"', "records": [{"key": 1, "value": 1}]}, (422, 42201), "key_schema"),
        ("avro", {"records": [{"value": 1}]}, (422, 42202), "value_schema"),
        (
            "avro",
            {"value_schema": '"int"', "records": [{"value": "x"}]},
            (422, 42203),
            "records[0].value",
        ),
        (
            "avro",
            {"value_schema": AVRO, "records": [{"value": {"id": 1, "note": "x"}}]},
            (422, 42203),
            "note",
        ),
        ("avro", {"value_schema": AVRO, "records": [{"value": {"id": 1, "no": 1}}]}, (422, 42203), "'no'"),
        ("avro", {"value_schema": "{", "records": [{"value": 1}]}, (422, 42205), "JSON"),
        ("avro", {"value_schema": {}, "records": [{"value": 1}]}, (422, 422), "value_schema"),
        ("avro", {"value_schema_id": 99, "records": [{"value": 1}]}, (408, 40801), "99"),
        ("avro", {"value_schema_id": "1", "records": [{"value": 1}]}, (422, 422), "value_schema_id"),
        ("avro", {"value_schema": '"string"', "records": [{"value": "x"}]}, (408, 40801), "orders-value"),
        ("jsonschema", {"value_schema_id": 1, "records": [{"value": 1}]}, (422, 42205), "AVRO"),
        ("jsonschema", {"key_schema": JSON, "records": [{"key": {"id": "x"}}]}, (422, 42203), "id"),
        ("protobuf", {"key_schema": PROTOBUF, "records": [{"key": {"id": "x"}}]}, (422, 42203), "id"),
        ("protobuf", {"key_schema": PROTOBUF, "records": [{"key": 1}]}, (422, 42203), "records[0].key"),
        ("protobuf", {"key_schema": "message", "records": [{"key": {}}]}, (422, 42205), "PROTOBUF"),
        (
            "protobuf",
            {"key_schema": 'syntax = "proto3"; enum E { A = 0; }', "records": [{"key": {}}]},
            (422, 42203),
            "records[0].key",
        ),
    ],
)
async def test_errors_of_wrong_requests_name_the_fault(
    scene: Scene, kind: str, body: Any, expected: tuple[int, int], words: str
) -> None:
    assert await scene.registry.register("orders-value", '"int"') == 1
    if "AVRO" in words or kind != "avro" or body.get("value_schema") == AVRO:
        assert (await scene.registry.delete("/subjects/orders-value")).status == 200
    answer = await scene.produce(kind, body)

    assert (answer.status, answer.body["error_code"]) == expected, answer.body
    assert words in answer.body["message"]
    assert await scene.raw() == []


async def test_a_record_that_cannot_be_shown_is_named_and_not_skipped(scene: Scene) -> None:
    await scene.produce("avro", {"value_schema": '"int"', "records": [{"value": 1}]})
    await scene.produce("binary", {"records": [{"value": "AQ=="}]})
    await scene.produce("avro", {"value_schema": '"int"', "records": [{"value": 2}]})
    base = await scene.consumer("avro")
    before = await scene.records(base, "avro")
    refused = [await scene.records(base, "avro") for _ in range(2)]
    place = {"offsets": [{"topic": TOPIC, "partition": 0, "offset": 2}]}
    assert (await scene.rest.post(f"{base}/positions", place)).status == 204
    behind = await scene.records(base, "avro")

    assert [record["value"] for record in before.body] == [1]
    assert {(answer.status, answer.body["error_code"]) for answer in refused} == {(500, 50002)}
    assert "orders-0" in refused[0].body["message"]
    assert [record["value"] for record in behind.body] == [2]


@pytest.mark.parametrize(
    ("kind", "octets", "words"),
    [
        ("avro", b"\0\0\0\0\x63\x02", "99"),
        ("avro", b"\0\0", "orders-0"),
        ("avro", b"\0\0\0\0\x01", "orders-0"),
        ("protobuf", b"\0\0\0\0\x01\x02", "AVRO"),
        ("json", b"NaN", "orders-0"),
        ("json", b"{", "orders-0"),
    ],
)
async def test_the_error_for_invalid_bytes_names_the_reason(scene: Scene, kind: str, octets: bytes, words: str) -> None:
    await scene.registry.register("s", '"int"')
    await scene.produce("binary", {"records": [{"value": base64.b64encode(octets).decode()}]})
    answer = await scene.records(await scene.consumer(kind), kind)

    assert (answer.status, answer.body["error_code"]) == (500, 50002)
    assert words in answer.body["message"]


async def test_large_values_go_through_a_thread(scene: Scene) -> None:
    text = "ü" * 60_000
    answer = await scene.produce("avro", {"value_schema": '"string"', "records": [{"value": text}] * 2})

    assert answer.status == 200, answer.body
    assert await scene.read("avro") == [text, text]


async def test_v3_accepts_schemas_in_every_form(scene: Scene) -> None:
    first = {"type": "AVRO", "schema": AVRO, "data": {"id": 1}}
    others: list[Any] = [
        {"schema_id": 1, "data": {"id": 2}},
        {"schema_version": 1, "data": {"id": 3}},
        {"data": {"id": 4}},
        {"type": "AVRO", "data": {"id": 5}},
        {"schema_id": 1, "type": "AVRO", "data": None},
        {"data": None},
    ]
    reports = await scene.reports({"value": first}, *({"value": other} for other in others))

    assert [report["error_code"] for report in reports] == [200] * 7
    assert reports[0]["value"] == {
        "type": "AVRO",
        "subject": "orders-value",
        "schema_id": 1,
        "schema_version": 1,
        "size": 8,
    }
    assert "value" not in reports[6]
    assert [value and value["id"] for value in await scene.read("avro")] == [1, 2, 3, 4, 5, None, None]


async def test_v3_names_subjects_by_strategy(scene: Scene) -> None:
    reports = await scene.reports(
        {"value": {"type": "AVRO", "schema": AVRO, "subject_name_strategy": "RECORD_NAME", "data": {"id": 1}}},
        {"value": {"type": "AVRO", "schema": AVRO, "subject_name_strategy": "TOPIC_RECORD_NAME", "data": {"id": 2}}},
        {"key": {"type": "JSONSCHEMA", "schema": JSON, "subject_name_strategy": "RECORD_NAME", "data": {"id": 3}}},
        {
            "value": {
                "type": "PROTOBUF",
                "schema": PROTOBUF,
                "subject_name_strategy": "RECORD_NAME",
                "data": {"id": 4},
                "subject": None,
            }
        },
        {"value": {"type": "AVRO", "schema": AVRO, "subject": "mine", "data": {"id": 5}}},
        {"value": {"subject": "mine", "schema_version": "latest", "data": {"id": 6}}},
    )
    codes = [report["error_code"] for report in reports]

    assert codes == [200, 200, 200, 408_01, 200, 200], (
        reports
    )  # Protobuf is not compatible with the Avro of the same name
    subjects = [(result.get("key") or result["value"])["subject"] for result in reports if result["error_code"] == 200]
    assert subjects == ["shop.Order", "orders-shop.Order", "Order", "mine", "mine"]


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ({"type": "BINARY", "schema": "x", "data": "YQ=="}, 400, "value.schema"),
        ({"type": "XML", "data": 1}, 422, "AVRO"),
        ({"schema": '"int"', "data": 1}, 400, "value.type"),
        ({"type": "AVRO", "schema": '"int"', "schema_id": 1, "data": 1}, 400, "schema_id"),
        ({"type": "AVRO", "schema": 7, "data": 1}, 400, "value.schema"),
        ({"schema_id": 0, "data": 1}, 400, "schema_id"),
        ({"schema_version": "first", "data": 1}, 400, "schema_version"),
        (
            {"schema_id": 1, "subject": "a", "subject_name_strategy": "TOPIC_NAME", "data": 1},
            400,
            "subject_name_strategy",
        ),
        ({"schema_id": 1, "subject_name_strategy": "ANY", "data": 1}, 400, "RECORD_NAME"),
        ({"subject_name_strategy": "RECORD_NAME", "data": 1}, 422, "RECORD_NAME"),
        ({"schema_id": 9, "data": 1}, 40801, "9"),
        ({"schema_version": 9, "subject": "s", "data": 1}, 40801, "9"),
        ({"data": 1}, 40801, "orders-value"),
        ({"type": "JSONSCHEMA", "schema_id": 1, "data": 1}, 42205, "AVRO"),
        ({"type": "AVRO", "schema": "{", "data": 1}, 42205, "JSON"),
        ({"type": "AVRO", "schema": '"int"', "subject_name_strategy": "RECORD_NAME", "data": 1}, 42205, "name"),
        ({"schema_id": 1, "data": "x"}, 42203, "value.data"),
    ],
)
async def test_v3_reports_the_error_of_each_record(scene: Scene, value: Any, code: int, words: str) -> None:
    await scene.registry.register("s", '"int"')
    wrong, right = await scene.reports({"value": value}, {"value": {"schema_id": 1, "data": 1}})

    assert wrong["error_code"] == code, wrong
    assert words in wrong["message"]
    assert right["error_code"] == 200


async def test_records_that_the_server_was_too_busy_to_read_are_read_by_the_next_request(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = {"value_schema": AVRO, "records": [{"value": {"id": at}} for at in range(3)]}
    assert (await scene.produce("avro", records)).status == 200
    base = await scene.consumer("avro")

    async def busy(*_: object) -> None:
        raise Overloaded("busy")

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "read", busy)
        refused = await scene.records(base, "avro")
    answer = await scene.records(base, "avro")

    assert refused.status == 503
    assert [record["value"]["id"] for record in answer.body] == [0, 1, 2]


async def test_a_number_that_no_double_can_hold_is_not_shown_as_json(scene: Scene) -> None:
    value = base64.b64encode(b"[1, 1e400]").decode()
    assert (await scene.produce("binary", {"records": [{"value": value}]})).status == 200
    answer = await scene.records(await scene.consumer("json"), "json")

    assert answer.status == 500
    assert "cannot be shown as json: not valid JSON" in answer.body["message"]
