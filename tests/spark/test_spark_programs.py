"""Real queries in Spark: exactly once through a killed job, the same rows as Spark's own Kafka source, and typed columns."""

import datetime
import json
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from fixtures import spark_programs
from fixtures.server_process import ServerProcess, started
from fixtures.spark_programs import kill, program, said

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

COUNT = 600
LIMIT = 200
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}]},
            },
        },
    ],
}

STREAM = """
query = (
    spark.readStream.format("bearlake").options(**given["stores"], subscribe="orders", startingOffsets="earliest")
    .option("maxOffsetsPerTrigger", 200).load()
    .writeStream.format("parquet").option("path", "out").option("checkpointLocation", "checkpoint")
    .start()
)
"""
COUNTS = """
import time
{stream}
while query.isActive and len(query.recentProgress) < 2: time.sleep(0.05)
say("BATCHES", 2)
query.awaitTermination()
"""
REST = """
query.processAllAvailable()
batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
query.stop()
written, expected = spark.read.parquet("out"), read(subscribe="orders")
say("ROWS", [written.count(), expected.exceptAll(written).count(), written.exceptAll(expected).count(), max(batches)])
"""
OTHERS = """
sizes = read(subscribe="orders").where("partition = 1 and offset between 10 and 19").selectExpr("count(*)", "min(offset)", "max(offset)")
say("FILTERED", list(sizes.first()))
typed = read(subscribe="typed", columns="typed").orderBy("_offset")
say("TYPED", [json.loads(text) for text in typed.drop("_timestamp", "_batch", "_key").toJSON().collect()])
if given["kafka"]:
    options = {"kafka.bootstrap.servers": given["kafka"], "kafka.isolation.level": "read_committed", "subscribe": "orders"}
    kafka = spark.read.format("kafka").options(**options, includeHeaders="true").load()
    ours = read(**options, includeHeaders="true")
    same = [f"{field.name} {field.dataType.simpleString()}" for field in kafka.schema]
    columns = [name for name in kafka.columns if name != "headers"]
    kafka, ours = kafka.select(columns), ours.select(columns)
    say("KAFKA", [kafka.count(), kafka.exceptAll(ours).count(), ours.exceptAll(kafka).count(), same])
    read(subscribe="orders").selectExpr("key", "value", "1 - partition as partition").limit(7).write.format("kafka").options(
        **{"kafka.bootstrap.servers": given["kafka"], "topic": "copies"}).save()
    say("COPIES", read(subscribe="copies").count())
"""
DRAIN = """
import pathlib, time
def run(name, options):
    query = (
        spark.readStream.format("bearlake").options(**given["stores"], subscribe="drained", **options).load()
        .writeStream.format("parquet").option("path", name).option("checkpointLocation", name + "-checkpoint")
        .trigger(availableNow=True).start()
    )
    query.awaitTermination()
def drain(name, **options):
    for attempt in range(3):  # Spark gives a Python worker ten seconds to start, which no setting changes
        try:
            run(name, options)
            break
        except Exception as error:
            if attempt == 2 or "failed to connect back" not in str(error):
                raise
    rows = spark.read.schema("partition int, offset bigint").parquet(name)
    return [rows.count(), rows.distinct().count()]
say("FIRST", [drain("all", startingOffsets="earliest"), drain("new"), drain("limited", startingOffsets="earliest", maxOffsetsPerTrigger=6)])
while not pathlib.Path("more").exists(): time.sleep(0.05)
say("THEN", [drain("all", startingOffsets="earliest"), drain("new"), drain("limited", startingOffsets="earliest", maxOffsetsPerTrigger=6)])
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, dict[str, str]]]:
    """A server with records in two streams, and the options that name its stores."""
    folder = tmp_path_factory.mktemp("lake")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as server:
        admin = AdminClient({"bootstrap.servers": server.kafka})
        typed = NewTopic("typed", 1, config={"table.value.mode": "elide"})
        for created in admin.create_topics(
            [NewTopic("orders", 2), NewTopic("copies", 2), NewTopic("drained", 2), typed]
        ).values():
            created.result(30)
        produce(server, 0, COUNT)
        registry = server.ready["registry"]
        body = json.dumps({"schema": json.dumps(ORDER)}).encode()
        url = f"http://{str(registry).removeprefix('http://')}/subjects/typed-value/versions"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            schema_id = json.load(answer)["id"]
        value = BytesIO(b"\0" + schema_id.to_bytes(4))
        value.seek(5)
        order = {
            "id": 7,
            "price": Decimal("1.25"),
            "at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
            "code": b"ab",
            "tags": {"x": 1},
            "lines": [{"item": "boat"}],
        }
        fastavro.schemaless_writer(value, fastavro.parse_schema(ORDER), order)
        producer = Producer({"bootstrap.servers": server.kafka})
        producer.produce("typed", value.getvalue())
        producer.flush()
        yield server, {"dataDir": str(folder / "data")}


def produce(server: ServerProcess, start: int, end: int, stream: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": server.kafka})
    for number in range(start, end):
        value = None if number % 100 == 0 else f"value {number}".encode()
        producer.produce(stream, value, f"key {number}".encode(), partition=number % 2, headers=[("h", b"1")])
    producer.flush()


def test_queries_read_each_record_once_through_a_kill_and_as_sparks_kafka_source_does(
    lake: tuple[ServerProcess, dict[str, str]], tmp_path: Path
) -> None:
    server, stores = lake
    with program(COUNTS.format(stream=STREAM), tmp_path, stores) as query:
        said(query, "BATCHES", tmp_path)
        kill(query)
    produce(server, COUNT, COUNT + LIMIT)
    try:
        with_jars = spark_programs.jars()
    except pytest.skip.Exception as missing:
        with_jars, reason = "", str(missing)
    more = {"kafka": server.kafka if with_jars else ""}

    with program(STREAM + REST + OTHERS, tmp_path, stores, with_jars=with_jars, **more) as query:
        rows = said(query, "ROWS", tmp_path)
        filtered = said(query, "FILTERED", tmp_path)
        typed = said(query, "TYPED", tmp_path)
        if with_jars:
            kafka = said(query, "KAFKA", tmp_path)
            copies = said(query, "COPIES", tmp_path)

    assert rows == [COUNT + LIMIT, 0, 0, LIMIT]
    assert filtered == [10, 10, 19]
    (order,) = typed
    assert order["id"] == 7
    assert (order["price"], order["at"], order["code"]) == (1.25, "1970-01-01T00:00:01.000Z", "YWI=")
    assert (order["tags"], order["lines"]) == ({"x": 1}, [{"item": "boat"}])
    assert "_value" not in order, "the columns give it back"
    if not with_jars:
        pytest.skip(f"the comparison with Spark's Kafka source: {reason}")
    assert kafka[:3] == [COUNT + LIMIT, 0, 0]
    assert kafka[3] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]
    assert copies == 7


def test_queries_that_read_what_is_available_go_on_where_their_checkpoint_is(
    lake: tuple[ServerProcess, dict[str, str]], tmp_path: Path
) -> None:
    server, stores = lake
    produce(server, 0, 20, "drained")
    with program(DRAIN, tmp_path, stores) as query:
        first = said(query, "FIRST", tmp_path)
        produce(server, 20, 30, "drained")
        (tmp_path / "more").touch()
        then = said(query, "THEN", tmp_path)

    assert first == [[20, 20], [0, 0], [6, 6]]
    assert then == [[30, 30], [10, 10], [12, 12]], "no record twice, and none left out"
