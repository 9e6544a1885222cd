"""Hostile names, schemas and records through a whole deployment: PostgreSQL keeps them, real Spark compacts them, and Spark SQL reads them.

One server for everything, because what one stream does must not reach another.
"""

import json
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from fixtures.server_process import ServerProcess, finished, started
from fixtures.spark_sql import jars, spark
from fixtures.typed_server import READ_S, await_compacted

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]

__all__ = ["jars"]
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

COUNT = 20
TEXTS = [
    "",
    "'; drop schema bearlake cascade; --",
    '"quoted"."name"',
    "`tick`",
    "line\r\nfeed",
    "zero\0byte",
    "\u202eright to left\u2066",
    "$$ $1 ${x} {0} %s",
    "../../etc/passwd",
    "x" * 255,
    "select",
    "\x1b[31mred",
]
REFUSED = [
    "a/b",
    "../x",
    "`x`",
    '"x"',
    "x'; drop",
    "a b",
    "名前",
    "a\0b",
    "a\nb",
    "\u202ex",
    "$x",
    "",
    ".",
    "..",
    "x" * 250,
]
"""Names that no stream may have."""
CLASHING = [
    "id",
    "ID",
    "Id",
    "select",
    "SELECT",
    "_offset",
    "_Offset",
    "_key",
    "_value",
    "table",
    "n" * 255,
    "_headers",
    "element",
]
"""Names of columns that are reserved, differ by case only, or are as long as Avro lets them be."""
RAW = {
    "-rf": "-rf",
    "x" * 249: "x" * 249,
    "__proto__": "__proto__",
    "information_schema.tables": "information_schema_tables",
}
"""Streams of plain values, and their tables."""
LEVEL_COUNT = 100
WIDE_COUNT = 1_000


class Case(NamedTuple):
    """A stream, its table's name in Spark, and its values with their schema. Without a schema: values are bytes."""

    stream: str
    table: str
    schema: dict[str, Any] | None
    values: list[Any]
    error: str = "None"
    """How the error of its rows begins."""


def record(name: str, fields: list[tuple[str, Any]]) -> dict[str, Any]:
    hostile = "\n".join(TEXTS)
    return {
        "type": "record",
        "name": name,
        "namespace": "drop.table.users",
        "doc": hostile,
        "fields": [{"name": field, "type": type_, "doc": TEXTS[1]} for field, type_ in fields],
    }


def nested(level: int) -> dict[str, Any]:
    inner: Any = "string" if level == LEVEL_COUNT else nested(level + 1)
    return record(f"L{level}", [("a", inner)])


def deep(text: str) -> Any:
    value: Any = text
    for _ in range(LEVEL_COUNT):
        value = {"a": value}
    return value


def cases() -> list[Case]:
    texts = [TEXTS[at % len(TEXTS)] for at in range(COUNT)]
    clashing = record(
        "Clashing", [*((name, "string") for name in CLASHING), ("map", {"type": "map", "values": "string"})]
    )
    raw: list[Any] = [text.encode() for text in texts]
    return [
        Case("select", "select", clashing, [dict.fromkeys(CLASHING, text) | {"map": {text: text}} for text in texts]),
        wide("wide", "None", WIDE_COUNT - 100),
        wide("WIDE", "UNSUPPORTED_SCHEMA", WIDE_COUNT + 1),
        Case("deep", "deep", nested(1), [deep(text) for text in texts], "DEPTH"),
        *(Case(name, table, None, raw, "NO_SCHEMA") for name, table in RAW.items()),
    ]


def wide(name: str, error: str, count: int) -> Case:
    schema = record("Wide", [(f"f{at}", "int") for at in range(count)])
    values = [{f"f{at}": number for at in range(count)} for number in range(COUNT)]
    return Case(name, name, schema, values, error)


@pytest.fixture
def lake(tmp_path: Path, postgresql_url: str) -> Iterator[tuple[Path, ServerProcess]]:
    """A folder where `bearlake up` runs with Spark, on PostgreSQL."""
    words = ("up", "--compaction", "--data-dir", tmp_path / ".bearlake", "--no-tour", "--metadata-url", postgresql_url)
    with started(*words, ready_file=tmp_path / "ready.json") as server:
        yield tmp_path / ".bearlake", server
        assert server.stop() == 0


def create(server: ServerProcess, name: str) -> int:
    """Create a stream over REST, which carries any name; returns the status."""
    url = f"{server.ready['rest']}/v3/clusters"
    with urllib.request.urlopen(url, timeout=READ_S) as answer:
        cluster = json.load(answer)["data"][0]["cluster_id"]
    configs = [{"name": "table.freshness_ms", "value": "1000"}, {"name": "table.value.mode", "value": "elide"}]
    body = json.dumps({"topic_name": name, "configs": configs}).encode()
    request = urllib.request.Request(f"{url}/{cluster}/topics", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=READ_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def produce(server: ServerProcess, case: Case) -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
    """Write the values, with keys and headers; returns what consumers must get."""
    sent = []
    with SchemaRegistryClient({"url": server.ready["registry"]}) as registry:
        context = SerializationContext(case.stream, MessageField.VALUE)
        serialize = AvroSerializer(registry, json.dumps(case.schema)) if case.schema else None
        producer = kafka.KafkaProducer(bootstrap_servers=server.kafka, enable_idempotence=False)
        for at, value in enumerate(case.values):
            octets = value if serialize is None else serialize(value, context)
            key, headers = TEXTS[at % len(TEXTS)].encode(), [(text, text.encode()) for text in TEXTS]
            producer.send(case.stream, value=octets, key=key, headers=headers).get(READ_S)
            sent.append((key, octets, headers))
        producer.close()
    return sent


def consumed(server: ServerProcess, case: Case, group: str) -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
    """Read all records of a stream."""
    consumer = kafka.KafkaConsumer(
        case.stream, bootstrap_servers=server.kafka, auto_offset_reset="earliest", group_id=group
    )
    found: list[tuple[bytes, bytes, list[tuple[str, bytes]]]] = []
    while len(found) < len(case.values):
        polled = consumer.poll(timeout_ms=int(READ_S * 1000))
        assert polled, "no more records"
        for records in polled.values():
            found += [(record.key, record.value, list(record.headers)) for record in records]
    consumer.close()
    return found


def test_hostile_names_schemas_and_records_pass_postgresql_and_spark_unchanged(
    lake: tuple[Path, ServerProcess], jars: str
) -> None:
    folder, server = lake
    found = cases()
    statuses = {name: create(server, name) for name in REFUSED}
    made = {case.stream: create(server, case.stream) for case in found}
    sent = {case.stream: produce(server, case) for case in found}
    before = {case.stream: consumed(server, case, TEXTS[1]) for case in found}

    await_compacted(server)

    after = {case.stream: consumed(server, case, '`"; --') for case in found}
    tables = [f"bearlake.streams.`{case.table}`" for case in found]
    counts = spark(jars, folder, [f"select count(*), max(_offset), max(_error) from {table}" for table in tables])
    longest = "n" * 255
    columns = f"count(id), count(ID_2), count(`select`), count(_offset_2), max(map['{TEXTS[3]}']), max(`{longest}`)"
    (clashing,) = spark(jars, folder, [f"select {columns} from bearlake.streams.`select`"])
    listed = json.loads(finished("stream", "list", "--admin", server.admin, "--json").stdout)

    assert set(statuses.values()) == {400}, statuses
    assert made == {case.stream: 201 for case in found}
    assert before == sent
    assert after == sent
    shown = [[[row[0], row[1], row[2].partition(":")[0]] for row in rows] for rows in counts]
    assert shown == [[[str(COUNT), str(COUNT - 1), case.error]] for case in found]
    assert clashing == [[str(COUNT)] * 4 + [TEXTS[3], max(TEXTS)]]
    assert sorted(stream["name"] for stream in listed) == sorted(case.stream for case in found)
