"""JSON values as typed columns, written by Confluent's serializer, in a real `bearlake up`: four readers see the same records."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.server_process import ServerProcess, finished
from fixtures.spark_sql import jars, spark
from fixtures.tables import pyiceberg_catalog
from fixtures.typed_server import READ_S, await_compacted, consumed, orders_server

with warnings.catch_warnings():  # of the client's own dependencies
    warnings.simplefilter("ignore")
    from confluent_kafka import Producer
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

__all__ = ["jars"]
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

COUNT = 300
SPARK_SQL = (
    "select count(id), sum(price), max(placed), sum(size(lines)), max(ticket), sum(get(lines, 1).count), max(tags['a']), count(_value),"
    " count(_schema_id), max(address.street), max(day), max(get_json_object(extra, '$.n')), max(`size in cm`), count(note)"
    " from bearlake.streams.orders"
)
ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "placed": {"type": "string", "format": "date-time"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "day": {"type": "string", "format": "date"},
        "ticket": {"type": "string", "format": "uuid"},
        "address": {"type": "object", "properties": {"street": {"type": "string"}}},
        "extra": {},
        "size in cm": {"type": "integer"},
    },
    "definitions": {
        "Line": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}},
    },
}
TICKET = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ServerProcess]]:
    """A folder where `bearlake up` runs with compaction, with a stream `orders` whose values become columns."""
    with orders_server(tmp_path_factory.mktemp("typed")) as found:
        yield found


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "price": number / 4,
        "placed": f"2026-11-28T09:{number % 60:02}:00.000001+01:00",
        "note": None if number % 3 else f"note {number}",
        "lines": [{"sku": f"s{at}", "count": at} for at in range(number % 4)],
        "tags": {"a": "b"} if number % 2 else {},
        "day": "2026-11-28",
        "ticket": TICKET,
        "address": {"street": "Straße 1", "unknown": [1]},
        "extra": {"n": 7} if number % 2 else [1, "x"],
        "size in cm": -number,
    }


def produce(server: ServerProcess) -> None:
    with SchemaRegistryClient({"url": server.ready["registry"]}) as registry:
        serialize = JSONSerializer(json.dumps(ORDER), registry, conf={"validate": False})
        in_headers = JSONSerializer(
            json.dumps(ORDER), registry, conf={"validate": False, "schema.id.serializer": header_schema_id_serializer}
        )
        producer = Producer({"bootstrap.servers": server.kafka})
        context = SerializationContext("orders", MessageField.VALUE)
        for number in range(COUNT):
            headers: list[tuple[str, bytes]] = []
            if number % 2:
                value = in_headers(order(number), SerializationContext("orders", MessageField.VALUE, headers))
                assert value.startswith(b"{")
            else:
                value = serialize(order(number), context)
            producer.produce("orders", value, headers=headers)
        producer.produce("orders", serialize({"id": 1.5}, context))
        producer.produce("orders", b"no schema")
    assert producer.flush(READ_S) == 0


def test_an_order_in_json_is_typed_in_three_engines_and_the_same_bytes_for_a_consumer(
    lake: tuple[Path, ServerProcess], jars: str
) -> None:
    folder, server = lake
    produce(server)
    before = consumed(server, "before", COUNT + 2)
    await_compacted(server)
    table = pyiceberg_catalog(folder).load_table("streams.orders")
    rows: list[dict[str, Any]] = table.scan().to_arrow().sort_by("_offset").to_pylist()
    duck = table.scan().to_duckdb("orders")
    duck_rows = duck.sql(
        "select count(id), sum(price), sum(len(lines)), max(tags['a']), max(address.street), count(extra) from orders"
    ).fetchall()
    sql = "select count(id) as n, max(note) as m, min(ticket) as t, max(placed) as p, max(day) as d from orders"
    own_rows = json.loads(finished("sql", sql, "--json", "--data-dir", folder).stdout)
    spark_rows = spark(
        jars,
        folder,
        [SPARK_SQL, "select _error from bearlake.streams.orders where _error is not null order by _offset"],
    )
    errors = json.loads(finished("table", "errors", "orders", "--json", "--data-dir", folder).stdout)

    assert [row["id"] for row in rows] == [*range(COUNT), None, None]
    assert [row["_value"] for row in rows] == [value for _, value in before]
    total, line_count = sum(range(COUNT)) / 4, sum(number % 4 for number in range(COUNT))
    assert duck_rows == [(COUNT, total, line_count, "b", "Straße 1", COUNT)]
    assert (own_rows[0]["n"], own_rows[0]["m"], own_rows[0]["t"]) == (COUNT, "note 99", TICKET)
    assert own_rows[0]["d"].startswith("2026-11-28")
    seconds = sum(number % 4 > 1 for number in range(COUNT))
    assert spark_rows[0] == [
        [str(COUNT), str(total), "2026-11-28 08:59:00.000001", str(line_count), TICKET, str(seconds), "b", str(COUNT + 2),
         str(COUNT + 1), "Straße 1", "2026-11-28", "7", "0", str(COUNT // 3)]
    ]  # fmt: skip
    no_schema = "NO_SCHEMA: the value does not begin with byte 0 and a schema's id"
    assert spark_rows[1] == [["TYPE: id"], [no_schema]]
    assert sorted((row["code"], row["record_count"]) for row in errors) == [("NO_SCHEMA", 1), ("TYPE", 1)]
    assert consumed(server, "after", COUNT + 2) == before
