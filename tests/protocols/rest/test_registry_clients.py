"""Confluent's own Python client and serializers against the registry, end to end with a Kafka server.

The clients are the unmodified `confluent-kafka`; they block, so they run in separate threads.
"""

import asyncio
import json
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from fixtures.kafka_server import Node
from fixtures.schema_registry import RegistryNode

with warnings.catch_warnings():  # of the client's own dependencies
    warnings.simplefilter("ignore")
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.schema_registry import ConfigCompatibilityLevel, Schema, SchemaRegistryClient, ServerConfig
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

R = TypeVar("R")
TOPIC = "orders"
CONTEXT = SerializationContext(TOPIC, MessageField.VALUE)
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": ["null", "string"]}},
    "required": ["id"],
}
RECORDS = [{"id": at, "note": None if at % 2 else f"größe {at}"} for at in range(5)]


async def in_thread(work: Callable[..., R], *arguments: Any) -> R:
    return await asyncio.to_thread(work, *arguments)


def round_trip(bootstrap: str, values: list[bytes]) -> list[bytes]:
    """Produce the values and consume them again."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(TOPIC, value, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(20) == 0
    assert failures == []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([TOPIC])
        found: list[bytes] = []
        while len(found) < len(values):
            messages = consumer.consume(len(values), 20)
            assert messages
            found += [message.value() for message in messages]
        return found
    finally:
        consumer.close()


async def test_avro_records_go_through_kafka(registry: RegistryNode, kafka: Node) -> None:
    def run() -> list[Any]:
        with SchemaRegistryClient({"url": registry.url}) as client:
            serialize = AvroSerializer(client, json.dumps(AVRO))
            values = round_trip(kafka.address, [serialize(record, CONTEXT) for record in RECORDS])
        with SchemaRegistryClient({"url": registry.url}) as reader:
            deserialize = AvroDeserializer(reader)
            return [deserialize(value, CONTEXT) for value in values]

    await kafka.create(TOPIC)

    assert await in_thread(run) == RECORDS
    assert (await registry.get("/subjects")).body == ["orders-value"]


async def test_json_records_go_through_kafka(registry: RegistryNode, kafka: Node) -> None:
    def run() -> list[Any]:
        with SchemaRegistryClient({"url": registry.url}) as client:
            serialize = JSONSerializer(json.dumps(JSON), client)
            values = round_trip(kafka.address, [serialize(record, CONTEXT) for record in RECORDS])
        with SchemaRegistryClient({"url": registry.url}) as reader:
            deserialize = JSONDeserializer(None, schema_registry_client=reader)
            return [deserialize(value, CONTEXT) for value in values]

    await kafka.create(TOPIC)

    assert await in_thread(run) == RECORDS
    assert (await registry.get("/subjects/orders-value/versions/1")).body["schemaType"] == "JSON"


async def test_protobuf_records_with_references_go_through_kafka(registry: RegistryNode, kafka: Node) -> None:
    order_type = order_message()

    def run() -> list[Any]:
        with SchemaRegistryClient({"url": registry.url}) as client:
            serialize = ProtobufSerializer(order_type, client, {"use.deprecated.format": False})
            orders = [order_type(id=at, when={"seconds": at}, customer={"name": f"größe {at}"}) for at in range(5)]
            values = round_trip(kafka.address, [serialize(order, CONTEXT) for order in orders])
        with SchemaRegistryClient({"url": registry.url}) as reader:
            deserialize = ProtobufDeserializer(order_type, {"use.deprecated.format": False}, reader)
            return [(order, deserialize(value, CONTEXT)) for order, value in zip(orders, values, strict=True)]

    await kafka.create(TOPIC)

    for written, read in await in_thread(run):
        assert read == written
    assert (await registry.get("/subjects")).body == ["orders-value", "shop/customer.proto"]
    shown = (await registry.get("/subjects/orders-value/versions/latest")).body
    assert shown["references"] == [{"name": "shop/customer.proto", "subject": "shop/customer.proto", "version": 1}]
    assert "message Order" in shown["schema"]


async def test_the_client_uses_the_latest_version_and_migrates(registry: RegistryNode) -> None:
    def run() -> Any:
        with SchemaRegistryClient({"url": registry.url}) as client:
            client.register_schema("orders-value", Schema(json.dumps(AVRO), "AVRO"))
            serialize = AvroSerializer(client, None, conf={"auto.register.schemas": False, "use.latest.version": True})
            value = serialize(RECORDS[0], CONTEXT)
            wider = AVRO | {"fields": [*AVRO["fields"], {"name": "zone", "type": "string", "default": "eu"}]}  # type: ignore[misc]
            client.register_schema("orders-value", Schema(json.dumps(wider), "AVRO"))
        with SchemaRegistryClient({"url": registry.url}) as reader:
            return AvroDeserializer(reader, conf={"use.latest.version": True})(value, CONTEXT)

    assert await in_thread(run) == RECORDS[0] | {"zone": "eu"}


async def test_every_call_of_the_client_works(registry: RegistryNode) -> None:
    def run() -> None:
        with SchemaRegistryClient({"url": registry.url}) as client:
            every_call(client)

    await in_thread(run)


def every_call(client: SchemaRegistryClient) -> None:
    schema = Schema(json.dumps(AVRO), "AVRO")
    schema_id = client.register_schema("a-value", schema)
    full = client.register_schema_full_response("b-value", schema, normalize_schemas=True)
    assert full.schema_id == schema_id
    assert json.loads(client.get_schema(schema_id).schema_str)["name"] == "Order"
    assert full.guid is not None
    assert client.get_schema_by_guid(full.guid).schema_str == client.get_schema(schema_id).schema_str
    assert client.lookup_schema("a-value", schema).version == 1
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]
    assert client.get_subjects() == ["a-value", "b-value"]
    assert client.get_subjects_by_schema_id(schema_id) == ["a-value", "b-value"]
    assert len(client.get_schema_versions(schema_id)) == 2
    assert client.get_versions("a-value") == [1]
    assert client.get_version("a-value", 1).schema_id == schema_id
    assert client.get_latest_version("a-value").version == 1
    assert client.get_referenced_by("a-value", 1) == []
    assert client.get_contexts() == ["."]
    assert client.get_compatibility() == "BACKWARD"
    assert client.set_compatibility("a-value", "FULL") == {"compatibility": "FULL"}
    assert client.get_compatibility("a-value") == "FULL"
    assert client.get_config("a-value").compatibility_level == "FULL"
    client.set_config("a-value", ServerConfig(compatibility=ConfigCompatibilityLevel.NONE, compatibility_group="major"))
    assert client.get_config("a-value").compatibility_group == "major"
    client.delete_config("a-value")
    client.set_config(None, ServerConfig(compatibility=ConfigCompatibilityLevel.FORWARD))
    assert client.test_compatibility("a-value", Schema('"string"', "AVRO")) is False
    assert client.test_compatibility_all_versions("a-value", schema) is True
    assert client.get_global_mode() == "READWRITE"
    client.update_mode("b-value", "READONLY")
    assert client.get_mode("b-value") == "READONLY"
    client.delete_mode("b-value")
    client.update_global_mode("READWRITE")
    owned = Schema(json.dumps(AVRO), "AVRO", metadata=metadata_of({"owner": "me"}))
    client.register_schema("c-value", owned)
    assert client.get_latest_with_metadata("c-value", {"owner": "me"}).version == 1
    assert client.delete_version("a-value", 1) == 1
    assert client.delete_version("a-value", 1, permanent=True) == 1
    assert client.delete_subject("b-value") == [1]
    assert client.delete_subject("b-value", permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_version("a-value", 1)
    assert (refused.value.http_status_code, refused.value.error_code) == (404, 40401)


def metadata_of(properties: dict[str, str]) -> Any:
    from confluent_kafka.schema_registry import Metadata, MetadataProperties

    return Metadata(tags=None, properties=MetadataProperties(properties=properties), sensitive=None)


def order_message() -> Any:
    """A message type made at run time, with a type of another file and a well-known type."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    pool = descriptor_pool.Default()
    field = descriptor_pb2.FieldDescriptorProto
    timestamp = timestamp_pb2.DESCRIPTOR.name
    customer = descriptor_pb2.FileDescriptorProto(name="shop/customer.proto", package="shop", syntax="proto3")
    customer.message_type.add(name="Customer").field.add(name="name", number=1, type=field.TYPE_STRING, label=1)
    order = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto", package="shop", syntax="proto3", dependency=[timestamp, customer.name]
    )
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=1)
    message.field.add(name="when", number=2, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    message.field.add(name="customer", number=3, type=field.TYPE_MESSAGE, type_name=".shop.Customer", label=1)
    for file in (customer, order):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
