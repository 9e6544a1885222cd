"""The example of typed columns in docs/table.md, with a real `bearlake up`, whose Spark compacts: four readers see the same records."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from fixtures.server_process import ServerProcess, finished
from fixtures.spark_sql import jars, spark
from fixtures.tables import pyiceberg_catalog
from fixtures.typed_server import READ_S, await_compacted, consumed, orders_server

__all__ = ["jars"]
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

COUNT = 300
SPARK_SQL = (
    "select count(id), sum(price), max(placed), sum(size(lines)), max(ticket), sum(get(lines, 1).count), max(tags['a']),"
    " count(_value), count(_schema_id), max(opens), sum(id_2), max(region), count(_key), count(_key_schema_id) from bearlake.streams.orders"
)
KEY = {
    "type": "record",
    "name": "Key",
    "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": "string"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "count", "type": "int"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "pieces", "type": "int"},
        {"name": "weight", "type": "float"},
        {"name": "opens", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "ticket", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ServerProcess]]:
    """A folder where `bearlake up` runs with compaction, with a stream `orders` whose keys and values become columns."""
    with orders_server(tmp_path_factory.mktemp("typed"), "table.key.mode=elide") as found:
        yield found


def produce(server: ServerProcess) -> None:
    with SchemaRegistryClient({"url": server.ready["registry"]}) as registry:
        serialize = AvroSerializer(registry, json.dumps(ORDER))
        serialize_key = AvroSerializer(registry, json.dumps(KEY))
        of_key = SerializationContext("orders", MessageField.KEY)
        producer = Producer({"bootstrap.servers": server.kafka})
        for number in range(COUNT):
            order = {
                "id": number,
                "price": Decimal(number) / 100,
                "placed": datetime.fromtimestamp(1_700_000_000 + number, UTC),
                "note": None if number % 3 else f"note {number}",
                "lines": [{"sku": f"s{at}", "count": at} for at in range(number % 4)],
                "tags": {"a": "b"} if number % 2 else {},
                "day": date(2026, 11, 27),
                "pieces": -number,
                "weight": number / 2,
                "opens": time(8, 30),
                "ticket": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            }
            key = serialize_key({"id": number + 7, "region": "north"}, of_key)
            producer.produce("orders", serialize(order, SerializationContext("orders", MessageField.VALUE)), key)
        producer.produce("orders", b"no schema")
    assert producer.flush(READ_S) == 0


def test_an_order_is_typed_in_three_engines_and_the_same_bytes_for_a_consumer(
    lake: tuple[Path, ServerProcess], jars: str
) -> None:
    folder, server = lake
    produce(server)
    before = consumed(server, "before", COUNT + 1)
    await_compacted(server)
    table = pyiceberg_catalog(folder).load_table("streams.orders")
    rows: list[dict[str, Any]] = table.scan().to_arrow().sort_by("_offset").to_pylist()
    duck = table.scan().to_duckdb("orders")
    duck_rows = duck.sql("select count(id), sum(price), max(placed), sum(len(lines)) from orders").fetchall()
    duck_keys = duck.sql("select sum(id_2), count(_key), max(region) from orders").fetchall()
    own_rows = json.loads(
        finished(
            "sql", "select count(id) as n, sum(price) as p, max(note) as m, min(ticket) as t from orders", "--json",
            "--data-dir", folder,
        ).stdout
    )  # fmt: skip
    spark_rows = spark(
        jars,
        folder,
        [
            SPARK_SQL,
            "select sum(id), min(pieces), max(day), sum(weight), max(opens), min(placed) from bearlake.streams.orders",
            "select _error from bearlake.streams.orders where _error is not null",
        ],
    )
    errors = json.loads(finished("table", "errors", "orders", "--json", "--data-dir", folder).stdout)

    assert len(rows) == COUNT + 1
    assert [row["id"] for row in rows] == [*range(COUNT), None]
    assert [row["_value"] for row in rows] == [*[None] * COUNT, b"no schema"]
    assert [(row["id_2"], row["region"], row["_key"]) for row in rows[:2]] == [(7, "north", None), (8, "north", None)]
    key_total = sum(range(7, COUNT + 7))
    assert duck_keys == [(key_total, 0, "north")]
    total = sum(range(COUNT)) / 100
    line_count = sum(number % 4 for number in range(COUNT))
    assert [(row[0], float(row[1]), row[3]) for row in duck_rows] == [(COUNT, total, line_count)]
    assert (own_rows[0]["n"], float(own_rows[0]["p"]), own_rows[0]["m"]) == (COUNT, total, "note 99")
    assert spark_rows[0] == [
        [str(COUNT), f"{total:.2f}", "2023-11-14 22:18:19", str(line_count), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
         str(sum(number % 4 > 1 for number in range(COUNT))), "b", "1", str(COUNT), "30600000000",
         str(key_total), "north", "0", str(COUNT)]
    ]  # fmt: skip
    flat_columns = [
        str(sum(range(COUNT))),
        str(1 - COUNT),
        "2026-11-27",
        "22425.0",
        "30600000000",
        "2023-11-14 22:13:20",
    ]
    assert spark_rows[1] == [flat_columns]
    assert spark_rows[2] == [["NO_SCHEMA: the value does not begin with byte 0 and a schema's id"]]
    assert [(row["code"], row["record_count"]) for row in errors] == [("NO_SCHEMA", 1)]
    assert consumed(server, "after", COUNT + 1) == before
