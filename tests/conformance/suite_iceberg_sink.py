"""Apache Iceberg's sink connector for Kafka Connect: from a topic into a table of our Iceberg REST catalog, each record once.

The connector creates the table, and commits with transactions of a producer and through a control topic. Kafka Connect is killed
after its first commit and starts again; records that are written afterwards have another field.
"""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from conformance import packages
from conformance.connect_standalone import worker
from conformance.outcomes import Context, Outcome
from fixtures.ports import free_port

POM = Path(__file__).resolve().parent / "iceberg_sink" / "pom.xml"
RECORD_COUNT, MORE_COUNT = 4_000, 2_000
PARTITION_COUNT = 2
TIMEOUT_S = 300
POLL_INTERVAL_S = 0.5

WORKER = """\
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.storage.file.filename={folder}/offsets
plugin.path={folder}/plugins
plugin.discovery=service_load
listeners=http://127.0.0.1:{port}
"""
SINK = """\
name={name}
connector.class=org.apache.iceberg.connect.IcebergSinkConnector
tasks.max=2
topics={name}
consumer.override.auto.offset.reset=earliest
consumer.override.session.timeout.ms=10000
iceberg.catalog.type=rest
iceberg.catalog.uri={catalog}
iceberg.catalog.warehouse=bearlake
iceberg.tables=sink.events
iceberg.tables.auto-create-enabled=true
iceberg.tables.evolve-schema-enabled=true
iceberg.control.topic={name}-control
iceberg.control.commit.interval-ms=2000
iceberg.control.commit.timeout-ms=30000
iceberg.kafka.bootstrap.servers={bootstrap}
"""


def run(context: Context) -> Iterator[Outcome]:
    """Run the connector once."""
    jars = packages.obtain_jars(POM, "iceberg-sink-jars")
    for name in context.selected():
        folder = context.logs / "iceberg-sink"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "plugins").mkdir(parents=True)
        (folder / "plugins" / "iceberg").symlink_to(jars)
        begin = time.monotonic()
        problem = _copy(context, folder, f"sink-{time.time_ns()}")
        yield Outcome(test=name, state="fail" if problem else "pass", seconds=time.monotonic() - begin, note=problem)


def _copy(context: Context, folder: Path, name: str) -> str:
    """Return what went wrong, or nothing."""
    given = {"bootstrap": context.bootstrap, "catalog": context.catalog, "folder": folder, "name": name}
    (folder / "worker.properties").write_text(WORKER.format(**given, port=free_port()))
    (folder / "sink.properties").write_text(SINK.format(**given))
    admin = AdminClient({"bootstrap.servers": context.bootstrap})
    topics = [NewTopic(name, PARTITION_COUNT), NewTopic(f"{name}-control", 1)]
    for created in admin.create_topics(topics).values():
        created.result(30)
    rows = [{"id": number, "item": {"name": f"item {number}"}, "price": number / 4} for number in range(RECORD_COUNT)]
    _produce(context.bootstrap, name, rows)
    with worker(folder, ["sink"], folder / "first.log") as process:
        if not _waits_for(process, lambda: bool(_read(context.catalog))):
            return f"nothing was committed, see {folder}/first.log"
        process.send_signal(signal.SIGKILL)
        process.wait()
    more = [{"id": RECORD_COUNT + number, "note": f"note {number}"} for number in range(MORE_COUNT)]
    _produce(context.bootstrap, name, more)
    expected: dict[Any, dict[str, Any]] = {row["id"]: row for row in [*rows, *more]}
    with worker(folder, ["sink"], folder / "second.log") as process:
        is_all = _waits_for(process, lambda: len(_read(context.catalog)) >= len(expected))
    found = _read(context.catalog)
    if not is_all or sorted(row["id"] for row in found) != sorted(expected):
        return f"{len(found)} rows, {len({row['id'] for row in found})} different ones, instead of {len(expected)}, see {folder}"
    wrong = [
        row for row in found if {key: value for key, value in row.items() if value is not None} != expected[row["id"]]
    ]
    return f"a row is {wrong[0]}" if wrong else ""


def _produce(bootstrap: str, topic: str, rows: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, row in enumerate(rows):
        producer.produce(topic, json.dumps(row).encode(), partition=number % PARTITION_COUNT)
    producer.flush(60)


def _read(catalog: str) -> list[dict[str, Any]]:
    try:
        table = RestCatalog("bearlake", uri=catalog).load_table("sink.events")
    except NoSuchTableError:
        return []
    found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return found


def _waits_for(process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so while the process runs."""
    until_s = time.monotonic() + TIMEOUT_S
    while not (found := is_so()) and process.poll() is None and time.monotonic() < until_s:
        time.sleep(POLL_INTERVAL_S)
    return found
