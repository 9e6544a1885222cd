"""Schemas of topics through the unmodified Python client and raw frames, and their versions in the registry."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.schemas.model import Draft
from bearlake.streams.schemas.service import Schemas
from fixtures.pulsar_server import Make, PulsarNode

ONE = b'{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
TWO = b'{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":"string","default":""}]}'
BROKEN = b'{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":"string"}]}'


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


def schema(kind: str = "Avro", content: bytes = ONE, **properties: str) -> pb.Schema:
    pairs = [KeyValue(key=key, value=value) for key, value in properties.items()]
    return pb.Schema(name="s", type=pb.Schema.Type.Value(kind), schema_data=content, properties=pairs)


@pytest.fixture
async def registry(pulsar: PulsarNode) -> AsyncIterator[Schemas]:
    """The registry as other servers of the deployment see it."""
    schemas = Schemas(pulsar.streams.metadata.schemas)
    yield schemas
    schemas.close()


async def test_a_producers_schema_is_the_first_version_of_the_streams_subject(pulsar: PulsarNode, registry: Schemas):
    client = await pulsar.client()

    opened = await client.produce("orders", schema=schema())

    assert opened.schema_version == version(0)
    found = await registry.version(ANONYMOUS, "orders-value", 1)
    assert json.loads(found.schema.text) == json.loads(ONE)


async def test_a_compatible_schema_is_the_next_version_and_each_can_be_read(pulsar: PulsarNode):
    client = await pulsar.client()
    await client.produce("orders", 1, schema=schema(owner="me"))

    second = await client.produce("orders", 2, schema=schema(content=TWO))
    again = await client.produce("orders", 3, schema=schema())

    assert (second.schema_version, again.schema_version) == (version(1), version(0))
    newest = await client.ask("get_schema", pb.CommandGetSchema(topic="orders"))
    assert newest.schema_version == version(1)
    assert json.loads(newest.schema.schema_data) == json.loads(TWO)
    assert newest.schema.name == "public/default/orders"
    oldest = await client.ask("get_schema", pb.CommandGetSchema(topic="orders", schema_version=version(0)))
    assert json.loads(oldest.schema.schema_data) == json.loads(ONE)
    assert [(property_.key, property_.value) for property_ in oldest.schema.properties] == [("owner", "me")]


@pytest.mark.parametrize("kind", ["Avro", "Json", "Protobuf"])
async def test_an_incompatible_schema_is_refused(pulsar: PulsarNode, kind: str):
    client = await pulsar.client()
    await client.produce("orders", 1, schema=schema(kind))

    refused = await client.produce("orders", 2, schema=schema(kind, BROKEN))
    reader = await client.subscribe("orders", schema=schema(kind, BROKEN))

    assert (refused.error, reader.error) == (pb.IncompatibleSchema, pb.IncompatibleSchema)
    newest = await client.ask("get_schema", pb.CommandGetSchema(topic="orders"))
    assert newest.schema_version == version(0)


async def test_another_type_with_the_same_definition_is_refused(pulsar: PulsarNode):
    client = await pulsar.client()
    await client.produce("orders", 1, schema=schema("Avro"))

    refused = await client.produce("orders", 2, schema=schema("Json"))
    text = await client.produce("orders", 3, schema=schema("String", b""))

    assert (refused.error, text.error) == (pb.IncompatibleSchema, pb.IncompatibleSchema)


async def test_level_none_of_the_registry_lets_the_type_change(pulsar: PulsarNode, registry: Schemas):
    client = await pulsar.client()
    await client.produce("orders", 1, schema=schema("Avro"))
    await registry.set_config(ANONYMOUS, "orders-value", {"compatibility": "NONE"})

    opened = await client.produce("orders", 2, schema=schema("Json"))
    again = await client.produce("orders", 3, schema=schema("Json"))

    assert (opened.schema_version, again.schema_version) == (version(1), version(1))
    newest = await client.ask("get_schema", pb.CommandGetSchema(topic="orders"))
    assert newest.schema.type == pb.Schema.Json


@pytest.mark.parametrize("kind", sorted(set(pb.Schema.Type.keys()) - {"AutoConsume"}))
async def test_every_schema_type_is_returned_as_it_was_registered(pulsar: PulsarNode, kind: str):
    client = await pulsar.client()
    content = {
        "Avro": ONE,
        "Json": ONE,
        "Protobuf": ONE,
        "KeyValue": b"\0\1\xff",
        "ProtobufNative": b'{"rootMessageTypeName":"a.B"}',
    }.get(kind, b"")
    given = schema(kind, content, **{"a.b": "1", "ü": ""})

    opened = await client.produce("orders", schema=given)
    answer = await client.ask("get_schema", pb.CommandGetSchema(topic="orders", schema_version=opened.schema_version))

    given.name = "public/default/orders"
    assert sorted(map(str, answer.schema.properties)) == sorted(map(str, given.properties))
    assert (answer.schema.type, answer.schema.schema_data, answer.schema.name) == (
        given.type,
        given.schema_data,
        given.name,
    )


def pair(key: bytes, value: bytes, *types: str) -> pb.Schema:
    """A KEY_VALUE schema of two schemas and their types."""
    content = b"".join(len(part).to_bytes(4, "big") + part for part in (key, value))
    named = {"key.schema.type": types[0], "value.schema.type": types[1], "kv.encoding.type": "SEPARATED"}
    return schema("KeyValue", content, **named)


@pytest.mark.parametrize(
    ("second", "is_taken"),
    [
        (pair(ONE, TWO, "AVRO", "AVRO"), True),
        (pair(TWO, ONE, "AVRO", "AVRO"), True),
        (pair(ONE, BROKEN, "AVRO", "AVRO"), False),
        (pair(BROKEN, ONE, "AVRO", "AVRO"), False),
        (pair(ONE, ONE, "AVRO", "JSON"), False),
        (pair(ONE, b"", "AVRO", "STRING"), False),
    ],
    ids=["value may change", "key may change", "broken value", "broken key", "other type", "primitive"],
)
async def test_both_schemas_of_a_key_value_schema_are_compared(
    pulsar: PulsarNode, second: pb.Schema, is_taken: bool
) -> None:
    client = await pulsar.client()
    first = await client.produce("orders", 1, schema=pair(ONE, ONE, "AVRO", "AVRO"))

    answer = await client.produce("orders", 2, schema=second)

    assert first.schema_version == version(0)
    assert (answer.schema_version == version(1)) if is_taken else (answer.error == pb.IncompatibleSchema)
    if is_taken:
        found = await client.ask("get_schema", pb.CommandGetSchema(topic="orders"))
        assert found.schema.schema_data == second.schema_data


async def test_key_and_value_may_define_the_same_names(pulsar: PulsarNode) -> None:
    kind = {"type": "enum", "name": "Order", "symbols": ["X"]}
    many = ["null", {"type": "array", "items": "Order"}]
    fields = [{"name": "a", "type": kind}, {"name": "b", "type": many, "default": None}]
    nested = json.dumps({"type": "record", "name": "Outer", "fields": fields}).encode()
    client = await pulsar.client()

    answer = await client.produce("orders", schema=pair(ONE, nested, "AVRO", "AVRO"))

    assert answer.schema_version == version(0)


DEEP = b"[" * 600 + b"]" * 600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0\x05abc\0\0\0\0",
        b"\0\0\0\1{\0\0\0\0",
        pytest.param(len(DEEP).to_bytes(4, "big") + DEEP + len(DEEP).to_bytes(4, "big") + DEEP, id="nested deeply"),
    ],
)
async def test_a_key_value_schema_that_is_broken_is_refused(pulsar: PulsarNode, content: bytes) -> None:
    broken = schema("KeyValue", content, **{"key.schema.type": "AVRO", "value.schema.type": "AVRO"})

    assert (await (await pulsar.client()).produce("orders", schema=broken)).error == pb.IncompatibleSchema


async def test_the_root_message_of_a_native_protobuf_schema_stays(pulsar: PulsarNode) -> None:
    """Pulsar compares only this: `ProtobufNativeSchemaCompatibilityCheck`."""
    client = await pulsar.client()
    described = [
        json.dumps({"rootMessageTypeName": root, "fileDescriptorSet": descriptor}).encode()
        for root, descriptor in (("a.B", "YQ=="), ("a.B", "Yg=="), ("a.C", "YQ=="))
    ]

    answers = [
        await client.produce("orders", number, schema=schema("ProtobufNative", version))
        for number, version in enumerate(described)
    ]
    nothing = await client.produce("orders", 9, schema=schema("ProtobufNative", b"{}"))

    assert [answer.schema_version for answer in answers[:2]] == [version(0), version(1)]
    assert (answers[2].error, nothing.error) == (pb.IncompatibleSchema, pb.IncompatibleSchema)


async def test_a_schema_of_bytes_is_a_version_that_excludes_other_types(pulsar: PulsarNode):
    """Go's `NewBytesSchema` has the type NONE on the wire."""
    client = await pulsar.client()

    opened = await client.produce("orders", 1, schema=schema("NoSchema", b""))
    again = await client.produce("orders", 2, schema=schema("NoSchema", b""))
    typed = await client.produce("orders", 3, schema=schema())
    untyped = await client.produce("orders", 4, schema=pb.Schema(name="s"))

    assert (opened.schema_version, again.schema_version, untyped.schema_version) == (version(0), version(0), b"")
    assert typed.error == pb.IncompatibleSchema
    found = await client.ask("get_schema", pb.CommandGetSchema(topic="orders", schema_version=version(0)))
    assert (found.schema.HasField("type"), found.schema.type, found.schema.schema_data) == (
        True,
        pb.Schema.NoSchema,
        b"",
    )


@pytest.mark.parametrize("is_permanent", [False, True])
async def test_a_deleted_schema_is_not_found_by_its_version(pulsar: PulsarNode, registry: Schemas, is_permanent: bool):
    client = await pulsar.client()
    await client.produce("orders", 1, schema=schema())
    await registry.delete_subject(ANONYMOUS, "orders-value")
    if is_permanent:
        await registry.delete_subject(ANONYMOUS, "orders-value", is_permanent=True)

    found = await client.ask("get_schema", pb.CommandGetSchema(topic="orders", schema_version=version(0)))

    assert found.error_code == pb.TopicNotFound
    assert not found.HasField("schema")


async def test_a_consumers_schema_is_the_first_of_a_topic_without_one(pulsar: PulsarNode):
    client = await pulsar.client()
    await client.subscribe("orders", schema=schema())

    again = await client.produce("orders", schema=schema())

    assert again.schema_version == version(0)


async def test_a_consumer_with_an_old_version_or_none_at_all_may_read(pulsar: PulsarNode):
    client = await pulsar.client()
    await client.produce("orders", 1, schema=schema())
    await client.produce("orders", 2, schema=schema(content=TWO))

    for number, given in enumerate([schema(), schema("AutoConsume", b""), schema("NoSchema", b""), None]):
        options = {} if given is None else {"schema": given}
        answer = await client.subscribe("orders", f"s{number}", number, **options)
        assert answer.DESCRIPTOR.name == "CommandSuccess", answer


async def test_partitions_share_their_topics_schema(pulsar: PulsarNode):
    await pulsar.create("orders", 2)
    client = await pulsar.client()
    await client.produce("orders-partition-0", 1, schema=schema())

    other = await client.produce("orders-partition-1", 2, schema=schema())

    assert other.schema_version == version(0)
    for name in ("orders", "orders-partition-1"):
        answer = await client.ask("get_schema", pb.CommandGetSchema(topic=name))
        assert answer.schema.name == "public/default/orders"


async def test_get_or_create_gives_versions_and_none_for_no_schema(pulsar: PulsarNode):
    await pulsar.create("orders")
    client = await pulsar.client()

    none = await client.ask(
        "get_or_create_schema", pb.CommandGetOrCreateSchema(topic="orders", schema=schema("NoSchema"))
    )
    first = await client.ask("get_or_create_schema", pb.CommandGetOrCreateSchema(topic="orders", schema=schema()))
    broken = await client.ask(
        "get_or_create_schema", pb.CommandGetOrCreateSchema(topic="orders", schema=schema(content=BROKEN))
    )

    assert (none.schema_version, none.error_code) == (b"", pb.UnknownError)
    assert first.schema_version == version(0)
    assert broken.error_code == pb.IncompatibleSchema


@pytest.mark.parametrize("asked", [version(7), b"\0" * 7, b"\xff" * 8, b"x" * 99])
async def test_a_missing_version_is_not_found(pulsar: PulsarNode, asked: bytes):
    client = await pulsar.client()
    await client.produce("orders", schema=schema())

    answer = await client.ask("get_schema", pb.CommandGetSchema(topic="orders", schema_version=asked))

    assert answer.error_code == pb.TopicNotFound


async def test_a_topic_without_a_schema_reports_no_schema(pulsar: PulsarNode):
    await pulsar.create("orders")
    client = await pulsar.client()

    for name in ("orders", "missing"):
        answer = await client.ask("get_schema", pb.CommandGetSchema(topic=name))
        assert answer.error_code == pb.TopicNotFound


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"type":"nothing"}', b"[" * 5000])
async def test_an_invalid_schema_is_refused(pulsar: PulsarNode, content: bytes):
    client = await pulsar.client()

    refused = await client.produce("orders", schema=schema(content=content))

    assert refused.error == pb.IncompatibleSchema


async def test_schemas_that_other_clients_registered_are_shown_as_avro_or_not_at_all(
    pulsar: PulsarNode, registry: Schemas
):
    client = await pulsar.client()
    await pulsar.create("orders")
    await registry.register(ANONYMOUS, "orders-value", Draft(text=ONE.decode()))

    shared = await client.produce("orders", 1, schema=schema())
    other = await client.produce("orders", 2, schema=schema("Json"))

    assert shared.schema_version == version(0)
    assert other.error == pb.IncompatibleSchema
    answer = await client.ask("get_schema", pb.CommandGetSchema(topic="orders"))
    assert answer.schema.type == pb.Schema.Avro


async def test_a_client_of_the_registry_continues_what_a_producer_began(pulsar: PulsarNode, registry: Schemas):
    client = await pulsar.client()
    await client.produce("orders", schema=schema("Json"))

    made = await registry.register(ANONYMOUS, "orders-value", Draft(text=TWO.decode()))

    assert made.number == 2
    answer = await client.ask("get_schema", pb.CommandGetSchema(topic="orders"))
    assert (answer.schema.type, answer.schema_version) == (pb.Schema.Json, version(1))


# -- the Python client ----------------------------------------------------------------------------------------------


def read_and_write(url: str, kind: str, log: Path) -> None:
    """Records of a schema: what one producer writes, consumers with the same and with a wider schema read."""
    pulsar_client = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    from pulsar import schema as schemas

    class Order(schemas.Record):
        id = schemas.Long(required=True)
        note = schemas.String()

    class Wider(schemas.Record):
        id = schemas.Long(required=True)
        note = schemas.String()
        more = schemas.Integer(required_default=True)

    class Incompatible(schemas.Record):
        id = schemas.String(required=True)

    Incompatible.__name__ = Wider.__name__ = "Order"
    made: Any = getattr(schemas, kind)
    logger = pulsar_client.FileLogger(pulsar_client.LoggerLevel.Warn, str(log))
    client = pulsar_client.Client(url, operation_timeout_seconds=20, logger=logger)
    try:
        producer = client.create_producer("orders", schema=made(Order))
        producer.send(Order(id=7, note="ü"))
        earliest = pulsar_client.InitialPosition.Earliest
        for name, known in (("same", Order), ("wider", Wider)):
            consumer = client.subscribe("orders", name, schema=made(known), initial_position=earliest)
            message = consumer.receive(20_000)
            assert (message.value().id, message.value().note) == (7, "ü")
            assert message.schema_version() == "\0" * 8  # of the schema that it was written with
        with pytest.raises(pulsar_client.IncompatibleSchema):
            client.create_producer("orders", schema=made(Incompatible))
        with pytest.raises(pulsar_client.IncompatibleSchema):
            client.subscribe("orders", "other", schema=made(Incompatible))
    finally:
        client.close()


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
async def test_the_python_client_reads_and_writes_records_of_a_schema(pulsar: PulsarNode, tmp_path: Path, kind: str):
    await asyncio.to_thread(read_and_write, pulsar.url, kind, tmp_path / "client.log")


async def test_producers_on_two_servers_agree_on_a_topics_type(pulsar_cluster: Make):
    cluster = await pulsar_cluster(2)
    await cluster[0].create("orders")
    first, second = await cluster[0].client(), await cluster[1].client()

    opened = await asyncio.gather(
        first.produce("orders", schema=schema("Avro")), second.produce("orders", schema=schema("Json"))
    )

    refused = [answer for answer in opened if answer.DESCRIPTOR.name == "CommandError"]
    assert [command.error for command in refused] == [pb.IncompatibleSchema]
