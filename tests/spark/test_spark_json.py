"""Spark reads declared columns of JSON and those of a JSON Schema, from the log and from data files, once through a killed job."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from fixtures.server_process import PROGRAM, ServerProcess, started
from fixtures.spark_programs import kill, program, said

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

COUNT, MORE = 120, 40
COLUMNS = "sensor string, value decimal(6,2), tags list<string>, place struct<x int, y double>, at timestamptz"
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}, "any": {"type": ["string", "integer"]}},
}

STREAM = """
query = (
    spark.readStream.format("bearlake")
    .options(**given["stores"], subscribe="readings", startingOffsets="earliest", columns="typed", maxOffsetsPerTrigger="40")
    .load().drop("_batch").writeStream.format("parquet").option("path", "out").option("checkpointLocation", "checkpoint")
    .start()
)
"""
UNTIL_KILLED = """
import time
while query.isActive and len(query.recentProgress) < 2: time.sleep(0.05)
say("BATCHES", 2)
query.awaitTermination()
"""
UNTIL_MORE = """
import os, time
while not os.path.exists("more"): time.sleep(0.05)
"""
REST = """
query.processAllAvailable()
query.stop()
written = spark.read.parquet("out")
expected = read(subscribe="readings", columns="typed").drop("_batch")
texts = lambda rows: rows.selectExpr("to_json(struct(*)) as text")
say("ROWS", [written.count(), texts(expected).exceptAll(texts(written)).count(), texts(written).exceptAll(texts(expected)).count()])
"""
LOOK = """
def rows(stream):
    found = read(subscribe=stream, columns="typed").drop("_timestamp", "_batch").orderBy("_partition_id", "_offset")
    return [json.loads(text) for text in found.toJSON().collect()]
say("READINGS", rows("readings"))
say("TEXTS", rows("texts"))
say("SUM", read(subscribe="readings", columns="typed").selectExpr("cast(sum(value) as string)", "count(place.x)").first())
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    folder = tmp_path_factory.mktemp("lake")
    with started(
        "up", "--compaction", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json"
    ) as server:
        admin = AdminClient({"bootstrap.servers": server.kafka})
        topics = [
            NewTopic("readings", 2, config={"table.columns": COLUMNS, "table.freshness_ms": "1000"}),
            NewTopic("texts", 1, config={"table.value.mode": "keep", "table.freshness_ms": "1000"}),
        ]
        for created in admin.create_topics(topics).values():
            created.result(30)
        url = f"http://{str(server.ready['registry']).removeprefix('http://')}/subjects/texts-value/versions"
        body = json.dumps({"schemaType": "JSON", "schema": json.dumps(SCHEMA)}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            header = b"\0" + json.load(answer)["id"].to_bytes(4)
        producer = Producer({"bootstrap.servers": server.kafka})
        for text in (b'{"any": 7, "id": 1, "item": "boat", "more": []}', b'{"id": "one"}', b'{"any": "x"}'):
            producer.produce("texts", header + text)
        producer.flush()
        produce(server, 0, COUNT)
        yield server, folder / "data"


def value(number: int) -> bytes:
    """Every tenth one does not fit."""
    fits: dict[str, Any] = {
        "value": number / 4,
        "sensor": f"s{number % 3}",
        "tags": ["a", None],
        "place": {"x": number, "z": 1},
        "at": "2026-11-28T09:30:00.5+01:00",
    }
    return json.dumps(fits if number % 10 else {"value": "much"}).encode()


def produce(server: ServerProcess, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": server.kafka})
    for number in range(start, end):
        producer.produce("readings", value(number), partition=number % 2)
    producer.flush()


def test_columns_of_json_values_are_the_same_before_and_after_compaction_and_once_through_a_kill(
    lake: tuple[ServerProcess, Path], tmp_path: Path
) -> None:
    server, data = lake
    stores = {"dataDir": str(data)}
    with program(LOOK + STREAM + UNTIL_KILLED, tmp_path, stores) as query:
        before = {word: said(query, word, tmp_path) for word in ("READINGS", "TEXTS", "SUM")}
        said(query, "BATCHES", tmp_path)
        kill(query)
    for stream in ("readings", "texts"):
        done = subprocess.run(
            [*PROGRAM, "compaction", "drain", stream, "--admin", server.admin, "--timeout-ms", "300000"],
            timeout=360,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done
    with program(LOOK + UNTIL_MORE + STREAM + REST, tmp_path, stores) as query:
        after = {word: said(query, word, tmp_path) for word in ("READINGS", "TEXTS", "SUM")}
        produce(server, COUNT, COUNT + MORE)
        (tmp_path / "more").touch()
        written = said(query, "ROWS", tmp_path)

    assert before == after
    assert written == [COUNT + MORE, 0, 0], "each record once, with the columns of a batch query"
    readings = sorted(after["READINGS"], key=lambda row: row["_offset"] * 2 + row["_partition_id"])
    assert len(readings) == COUNT
    assert [row.get("value") for row in readings] == [number / 4 if number % 10 else None for number in range(COUNT)]
    fits, does_not = readings[1], readings[10]
    assert (fits["sensor"], fits["tags"], fits["place"]) == ("s1", ["a", None], {"x": 1})
    assert fits["at"] == "2026-11-28T08:30:00.500Z"
    assert "_error" not in fits
    assert does_not["_error"] == "FORMAT: value"
    assert after["SUM"] == [
        str(sum(25 * number for number in range(COUNT) if number % 10) / 100) + "0",
        COUNT * 9 // 10,
    ]
    boat, wrong, text = after["TEXTS"]
    assert (boat["id"], boat["item"], boat["any"]) == (1, "boat", "7")
    assert wrong["_error"].startswith("TYPE")
    assert "id" not in wrong
    assert text["any"] == '"x"'
