"""Protobuf values as typed columns, with a real `bearlake up`, whose Spark compacts: four readers see the same records."""

import json
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP

from bearlake.streams.schemas.formats import protobuf as compiler
from fixtures.server_process import ServerProcess, finished
from fixtures.spark_sql import jars, spark
from fixtures.tables import pyiceberg_catalog
from fixtures.typed_server import READ_S, await_compacted, consumed, create, orders_server

with warnings.catch_warnings():  # of the client's own dependencies
    warnings.simplefilter("ignore")
    from confluent_kafka import KafkaError, Producer
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

__all__ = ["jars"]
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

COUNT = 300
SPARK_SQL = (
    "select count(id), sum(price), max(placed), sum(size(lines)), max(hash), min(get(lines, 1).count), max(tags['a']),"
    " count(_value), max(address.street), count(note), count(city), count(locker) from bearlake.streams.orders"
)
ORDER = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; double price = 2; google.protobuf.Timestamp placed = 3; optional string note = 4; repeated Line lines = 5;
  map<string, string> tags = 6; Status status = 7; uint64 hash = 8; oneof to { string city = 9; uint32 locker = 10; } bytes raw = 11;
  Address address = 12; }
message Line { string sku = 1; sint32 count = 2; }
message Address { string street = 1; bool is_new = 2; }
enum Status { NEW = 0; PAID = 1; }
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ServerProcess]]:
    """A folder where `bearlake up` runs with compaction, with a stream `orders` whose values become columns."""
    with orders_server(tmp_path_factory.mktemp("typed")) as found:
        yield found


@cache
def order_class() -> Any:
    """The class that a program's generated code has for an order."""
    file: FileDescriptorProto = compiler.parsed(ORDER, {}).file
    pool = DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def orders() -> list[Any]:
    made = order_class()
    found = []
    for number in range(COUNT):
        order = made(
            id=number,
            price=number / 4,
            placed={"seconds": 1_700_000_000 + number, "nanos": 1_000 * number},
            lines=[{"sku": f"s{at}", "count": -at} for at in range(number % 4)],
            tags={"a": "b"} if number % 2 else {},
            status=number % 2,
            hash=2**64 - 1 - number,
            raw=bytes([number % 256]),
            address={"street": f"Storgata {number}"},
        )
        if number % 3 == 0:
            order.note = f"note {number}" if number else ""
        if number % 2:
            order.city = "Bergen"
        else:
            order.locker = number
        found.append(order)
    return found


def produce(server: ServerProcess) -> None:
    with SchemaRegistryClient({"url": server.ready["registry"]}) as registry:
        serialize = ProtobufSerializer(order_class(), registry, {"use.deprecated.format": False})
        producer = Producer({"bootstrap.servers": server.kafka})
        context = SerializationContext("orders", MessageField.VALUE)
        for order in orders():
            producer.produce("orders", serialize(order, context))
        producer.produce("orders", b"no schema")
    assert producer.flush(READ_S) == 0


def test_a_message_is_typed_in_three_engines_and_the_same_bytes_for_a_consumer(
    lake: tuple[Path, ServerProcess], jars: str
) -> None:
    folder, server = lake
    produce(server)
    before = consumed(server, "before", COUNT + 1)
    await_compacted(server)
    table = pyiceberg_catalog(folder).load_table("streams.orders")
    rows: list[dict[str, Any]] = table.scan().to_arrow().sort_by("_offset").to_pylist()
    duck = table.scan().to_duckdb("orders")
    duck_rows = duck.sql(
        "select count(id), sum(price), sum(len(lines)), count(city), max(hash)::varchar, max(tags['a']) from orders"
    ).fetchall()
    sql = "select count(id) as n, sum(locker)::bigint as l, max(note) as m, max(status) as s from orders"
    own_rows = json.loads(finished("sql", sql, "--json", "--data-dir", folder).stdout)
    spark_rows = spark(
        jars,
        folder,
        [
            SPARK_SQL,
            "select _error from bearlake.streams.orders where _error is not null",
        ],
    )  # fmt: skip
    errors = json.loads(finished("table", "errors", "orders", "--json", "--data-dir", folder).stdout)

    assert len(rows) == COUNT + 1
    assert [row["id"] for row in rows] == [*range(COUNT), None]
    assert [row["_value"] for row in rows] == [*[None] * COUNT, b"no schema"]
    assert [row["note"] for row in rows[:4]] == ["", None, None, "note 3"]
    total, line_count = sum(range(COUNT)) / 4, sum(number % 4 for number in range(COUNT))
    largest = str(2**64 - 1)
    assert duck_rows == [(COUNT, total, line_count, COUNT // 2, largest, "b")]
    assert own_rows == [{"n": COUNT, "l": sum(range(0, COUNT, 2)), "m": "note 99", "s": "PAID"}]
    assert spark_rows[0] == [
        [str(COUNT), str(total), "2023-11-14 22:18:19.000299", str(line_count), largest, "-1", "b", "1", "Storgata 99",
         str(COUNT // 3), str(COUNT // 2), str(COUNT // 2)]
    ]  # fmt: skip
    assert spark_rows[1] == [["NO_SCHEMA: the value does not begin with byte 0 and a schema's id"]]
    assert [(row["code"], row["record_count"]) for row in errors] == [("NO_SCHEMA", 1)]
    assert consumed(server, "after", COUNT + 1) == before


def test_the_door_checks_what_the_serializer_writes(lake: tuple[Path, ServerProcess]) -> None:
    _, server = lake
    create(server, "checked", "schema.validation=value")
    outcomes: list[KafkaError | None] = []
    with SchemaRegistryClient({"url": server.ready["registry"]}) as registry:
        serialize = ProtobufSerializer(order_class(), registry, {"use.deprecated.format": False})
        good: bytes = serialize(orders()[1], SerializationContext("checked", MessageField.VALUE))
    producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 0})

    for value in (good, good[:-1], b"no schema", good[:5] + b"\2\x10" + good[6:]):
        producer.produce("checked", value, on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(READ_S) == 0

    codes = [None if error is None else error.code() for error in outcomes]
    assert codes == [None, *[KafkaError.INVALID_RECORD] * 3]
