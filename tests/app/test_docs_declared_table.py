"""CREATE TABLE in Spark against a real `bearlake up`: rows from Kafka, REST and gRPC, in four engines."""

import base64
import json
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

from bearlake.client import CallFailed, Client
from fixtures.server_process import ServerProcess, finished
from fixtures.spark_sql import jars, spark
from fixtures.typed_server import READ_S, await_compacted, create, orders_server

__all__ = ["jars"]
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

CREATE = (
    "create table bearlake.streams.readings (sensor string, value decimal(6, 2), tags array<string>, place struct<x: int, y: double>)"
    " tblproperties ('bearlake.stream' = 'true', 'bearlake.config.table.freshness_ms' = '1000', 'bearlake.stream.partitions' = '2')"
)
REFUSED = [
    "create table bearlake.streams.strict (id bigint not null) tblproperties ('bearlake.stream' = 'true')",
    "create table bearlake.streams.parted (id bigint) partitioned by (id) tblproperties ('bearlake.stream' = 'true')",
    "create table bearlake.streams.copied tblproperties ('bearlake.stream' = 'true') as select 1 as id",
    "insert into bearlake.streams.readings (sensor) values ('no')",
]
SELECT = "select sensor, value, tags[0], place.x, at from bearlake.streams.readings order by sensor"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ServerProcess]]:
    """A folder where `bearlake up` runs with compaction."""
    with orders_server(tmp_path_factory.mktemp("declared")) as found:
        yield found


def produce(server: ServerProcess) -> None:
    """A record by each protocol."""
    producer = Producer({"bootstrap.servers": server.kafka})
    producer.produce(
        "readings", b'{"sensor": "a", "value": "1.5", "tags": ["x"], "at": "2026-11-28T09:30:00Z"}', partition=0
    )
    producer.produce("readings", b'{"sensor": 7}', partition=0)
    assert producer.flush(READ_S) == 0
    body = {"records": [{"value": {"sensor": "b", "place": {"x": 3, "y": 0.5}}}]}
    request = urllib.request.Request(
        f"{server.ready['rest']}/topics/readings",
        json.dumps(body).encode(),
        {"Content-Type": "application/vnd.kafka.json.v2+json"},
    )
    with urllib.request.urlopen(request, timeout=READ_S) as answer:
        assert json.loads(answer.read())["offsets"][0]["error"] is None
    rows = pa.record_batch({"sensor": ["c"], "value": [Decimal("2.25")], "_key": [b"k"]})
    with Client(server.ready["grpc"]) as client:
        client.append_arrow("readings", rows.schema.serialize(), rows.serialize(), partition=1)


def test_a_table_that_spark_creates_has_the_rows_of_all_producers_in_all_engines(
    lake: tuple[Path, ServerProcess], jars: str
) -> None:
    folder, server = lake
    url = server.ready["catalog"]
    altered = "alter table bearlake.streams.readings add column at timestamp"
    made = spark(jars, folder, [CREATE, *REFUSED, altered, CREATE], url)
    described = finished("stream", "describe", "readings", "--admin", server.admin)
    produce(server)
    live = spark(jars, folder, [SELECT], url, "live")[0]
    await_compacted(server)
    compacted = spark(
        jars, folder, [SELECT, "select _error from bearlake.streams.readings where _error is not null"], url
    )
    table = load_catalog("bearlake", type="rest", uri=url).load_table("streams.readings")
    rows: list[dict[str, Any]] = (
        table.scan().to_arrow().sort_by([("_partition_id", "ascending"), ("_offset", "ascending")]).to_pylist()
    )
    duck = (
        table.scan()
        .to_duckdb("readings")
        .sql("select sensor, value from readings where value is not null order by 1")
        .fetchall()
    )
    sql = "select sensor, place.y as y from readings where sensor = 'b'"
    own = json.loads(finished("sql", sql, "--json", "--data-dir", folder).stdout)

    assert made[0] == []
    assert [str(answer)[:8] for answer in made[1:5]] == ["refused:"] * 4
    assert "must be optional" in str(made[1])
    assert "no partitions" in str(made[2])
    assert made[5] == []
    assert "already exists" in str(made[6])
    assert "sensor string, value decimal(6,2), tags list<string>" in described.stdout.decode()
    expected = [
        ["None", "None", "None", "None", "None"],
        ["a", "1.50", "x", "None", "2026-11-28 09:30:00"],
        ["b", "None", "None", "3", "None"],
        ["c", "2.25", "None", "None", "None"],
    ]
    assert live == expected
    assert compacted == [expected, [["TYPE: sensor"]]]
    assert sorted(str(row["sensor"]) for row in rows) == ["None", "a", "b", "c"]
    assert {row["_value"] for row in rows if row["sensor"] == "c"} == {b'{"sensor":"c","value":2.25}'}
    assert duck == [("a", Decimal("1.50")), ("c", Decimal("2.25"))]
    assert own == [{"sensor": "b", "y": 0.5}]


ORDER = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "minimum": 1}}}
DOORS = [
    ("declared", ["table.columns=id long", "schema.validation=value"], b"", b'{"id": 1}', b'{"id": "x"}'),
    ("judged", ["schema.validation=value"], None, b'{"id": 1}', b'{"id": 0}'),
]


def post(url: str, body: Any, kind: str) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=READ_S) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize(("stream", "configs", "head", "good", "bad"), DOORS, ids=[door[0] for door in DOORS])
def test_validated_values_of_json_are_refused_in_the_words_of_each_protocol(
    lake: tuple[Path, ServerProcess], stream: str, configs: list[str], head: bytes | None, good: bytes, bad: bytes
) -> None:
    pulsar = pytest.importorskip("pulsar", reason="needs pulsar-client")
    _, server = lake
    create(server, stream, *configs)
    if head is None:
        body = {"schemaType": "JSON", "schema": json.dumps(ORDER)}
        url = f"{server.ready['registry']}/subjects/{stream}-value/versions"
        made = post(url, body, "application/vnd.schemaregistry.v1+json")
        head = b"\0" + int(made["id"]).to_bytes(4, "big")
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": server.kafka})
    for value in (good, bad):
        producer.produce(stream, head + value, on_delivery=lambda error, _: errors.append(error and error.name()))
        assert producer.flush(READ_S) == 0
    records = [{"value": base64.b64encode(head + value).decode()} for value in (bad, good)]
    answer = post(
        f"{server.ready['rest']}/topics/{stream}", {"records": records}, "application/vnd.kafka.binary.v2+json"
    )
    client = pulsar.Client(f"pulsar://{server.ready['pulsar']}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    sender = client.create_producer(f"persistent://public/default/{stream}", send_timeout_millis=3_000)
    sender.send(head + good)  # what a bad one gets: `test_pulsar_schema_validation.py`
    client.close()
    with Client(server.ready["grpc"]) as grpc_client:
        grpc_client.append(stream, [head + good])
        with pytest.raises(CallFailed) as refused:
            grpc_client.append(stream, [head + good, head + bad])
        stored = [record.value for record in grpc_client.read(stream, follow=False)]

    assert errors == [None, "INVALID_RECORD"]
    assert [item["error_code"] for item in answer["offsets"]] == [1, None]
    assert refused.value.reason == "INVALID_RECORD"
    assert stored == [head + good] * 4
