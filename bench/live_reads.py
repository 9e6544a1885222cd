"""Do readers of the warehouse `live` see every acknowledged record exactly once, and what does a load cost? With compaction and kills.

    python bench/live_reads.py [--seconds 60] [--records-per-s 3000] [--engine pyiceberg --engine sql --engine spark] [--kill]

`bearlake up` with its compaction worker, and one producer at a steady rate. Each reader reads the whole table in a loop. Before each read
it notes what is acknowledged. In what it reads, each partition's offsets must be 0, 1, 2 … without gap or repeat, and reach at least what
was acknowledged before. One violation makes the exit code 1. With `--kill`, the compaction worker is killed (-9) every 20 s; it starts
again.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.errors import BenchError
from bench.freshness import STREAM, LakeServer, Load, worker_pid
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog.rest import RestCatalog

from bench import processes, report

KILL_INTERVAL_S = 20.0
READ_TIMEOUT_S = 120.0
STATEMENT = (
    "select _partition_id, count(*), count(distinct _offset), max(_offset) + 1 from {table} group by 1 order by 1"
)

Counts = dict[int, tuple[int, int, int]]
"""Partition → rows, distinct offsets, largest offset + 1."""


@dataclass(slots=True)
class Reader:
    """One engine, and what it found."""

    name: str
    read: Callable[[], Counts]
    read_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def run(self, load: Load, until_s: float) -> None:
        """Read until that time."""
        while time.monotonic() < until_s:
            acknowledged, began_s = load.acknowledged(), time.monotonic()
            try:
                found = self.read()
            except Exception as error:  # noqa: BLE001 - a failed read is counted
                self.failed.append(repr(error)[:300])
                time.sleep(0.2)
                continue
            self.read_s.append(time.monotonic() - began_s)
            self._check(acknowledged, found)

    def _check(self, acknowledged: list[int], found: Counts) -> None:
        for partition, end in enumerate(acknowledged):
            rows, distinct, seen_end = found.get(partition, (0, 0, 0))
            if not rows == distinct == seen_end >= end:
                self.violations.append(
                    f"partition {partition}: {rows} rows, {distinct} offsets, up to {seen_end}; acknowledged {end}"
                )


def pyiceberg_reader(catalog_url: str) -> Callable[[], Counts]:
    """Read with PyIceberg."""
    catalog = RestCatalog("bearlake", uri=catalog_url, warehouse="live")

    def read() -> Counts:
        table = catalog.load_table(("streams", STREAM))
        if table.current_snapshot() is None:
            return {}
        rows = table.scan(selected_fields=("_partition_id", "_offset")).to_arrow()
        grouped = rows.group_by("_partition_id").aggregate(
            [("_offset", "count"), ("_offset", "count_distinct"), ("_offset", "max")]
        )
        return {
            row["_partition_id"]: (row["_offset_count"], row["_offset_count_distinct"], row["_offset_max"] + 1)
            for row in grouped.to_pylist()
        }

    return read


def sql_reader(server: LakeServer) -> Callable[[], Counts]:
    """Read with `bearlake sql`."""
    command = [server.command, "sql", STATEMENT.format(table=STREAM), "--json", "--data-dir", str(server.data)]

    def read() -> Counts:
        done = subprocess.run(command, capture_output=True, timeout=READ_TIMEOUT_S, check=False)
        if done.returncode:
            raise BenchError(done.stderr.decode()[-300:])
        rows = [list(row.values()) for row in json.loads(done.stdout)]
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    return read


DUCKDB_PROGRAM = """
import glob, json, os, sys, duckdb
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
packages = os.path.dirname(os.path.dirname(duckdb.__file__))
for name in ("avro", "httpfs", "iceberg"):
    (path,) = glob.glob(f"{packages}/duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
    connection.execute(f"load '{path}'")
connection.execute(f"attach 'live' as bearlake (type iceberg, endpoint '{sys.argv[1]}', authorization_type 'none')")
for statement in sys.stdin:
    try:
        answer = connection.execute(statement).fetchall()
    except Exception as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
"""


def duckdb_reader(catalog_url: str, python: str) -> Callable[[], Counts]:
    """Read with DuckDB's own reader of Iceberg, in another Python."""
    child = subprocess.Popen(
        [python, "-c", DUCKDB_PROGRAM, catalog_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    question, answers = child.stdin, child.stdout

    def read() -> Counts:
        question.write(STATEMENT.format(table=f"bearlake.streams.{STREAM}") + "\n")
        question.flush()
        rows = json.loads(answers.readline())
        if isinstance(rows, str):
            raise BenchError(rows)
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    return read


def spark_reader(catalog_url: str, jars: str) -> Callable[[], Counts]:
    """Read with Spark in this process."""
    from pyspark.sql import SparkSession

    name = "spark.sql.catalog.bearlake"
    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.jars": jars,
        "spark.driver.memory": "768m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "rest",
        f"{name}.uri": catalog_url,
        f"{name}.warehouse": "live",
        f"{name}.cache-enabled": "false",
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")

    def read() -> Counts:
        rows = session.sql(STATEMENT.format(table=f"bearlake.streams.{STREAM}")).collect()
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    return read


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--records-per-s", type=float, default=3000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--engine", action="append", choices=["pyiceberg", "sql", "spark", "duckdb"])
    parser.add_argument("--jars", default="", help="for Spark: paths of Iceberg's runtime, separated by commas")
    parser.add_argument(
        "--duckdb-python",
        default="",
        help="for DuckDB: a Python with duckdb and the wheels of its extensions avro, httpfs and iceberg (1.5.5 has them)",
    )
    parser.add_argument("--kill", action="store_true", help="kill the compaction worker every 20 s")
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            readers, figures = measure(LakeServer(root / "lake"), options)
    except BenchError as error:
        sys.exit(f"live_reads: {error}")
    rows = [
        [
            reader.name,
            str(len(reader.read_s)),
            str(len(reader.violations)),
            str(len(reader.failed)),
            *(report.short(value) for value in _percentiles(reader.read_s)),
        ]
        for reader in readers
    ]
    print(report.table(["engine", "reads", "violations", "failed", "p50 s", "max s"], rows))
    print(report.table(["figure", "value"], [[name, report.short(value)] for name, value in figures.items()]))
    for reader in readers:
        for text in [*reader.violations[:5], *reader.failed[:3]]:
            print(f"{reader.name}: {text}", file=sys.stderr)
    sys.exit(1 if any(reader.violations or not reader.read_s for reader in readers) else 0)


def measure(server: LakeServer, options: argparse.Namespace) -> tuple[list[Reader], dict[str, float]]:
    """Run the load and the readers; return them and the server's figures."""
    server.start()
    try:
        admin = AdminClient({"bootstrap.servers": server.address})
        admin.create_topics([NewTopic(STREAM, options.partitions, config={"table.freshness_ms": "2000"})])[
            STREAM
        ].result(30)
        url = server.listeners["catalog"]
        makers = {
            "pyiceberg": lambda: pyiceberg_reader(url),
            "sql": lambda: sql_reader(server),
            "spark": lambda: spark_reader(url, options.jars),
            "duckdb": lambda: duckdb_reader(url, options.duckdb_python),
        }
        readers = [Reader(name, makers[name]()) for name in options.engine or ["pyiceberg", "sql"]]
        load = Load(
            server.address, options.partitions, options.record_bytes, options.records_per_s * options.record_bytes
        )
        load.start()
        until_s = time.monotonic() + options.seconds
        threads = [threading.Thread(target=reader.run, args=(load, until_s), daemon=True) for reader in readers]
        for thread in threads:
            thread.start()
        loads = _look(server, url, until_s, is_killing=options.kill)
        for thread in threads:
            thread.join(READ_TIMEOUT_S)
        load.is_stopping.set()
        load.join(90)
        figures = {
            "records acknowledged": float(sum(load.acknowledged())),
            "records failed": float(load.failed_count),
            "load p50 ms": 1000 * statistics.median(loads),
            "load max ms": 1000 * max(loads),
            "objects under tail/": float(
                sum(1 for found in (server.data / "objects" / "tail").rglob("*") if found.is_file())
            ),
            "server CPU-s": processes.usage(server.pid).cpu_s,
            "turns of the event loop over 50 ms": server.metric("bearlake_server_loop_stalls_total"),
        }
        return readers, figures
    finally:
        server.stop()


def _look(server: LakeServer, url: str, until_s: float, *, is_killing: bool) -> list[float]:
    """Load the table once a second, and kill the worker; return the seconds of each load."""
    path = f"{url}/v1/live/namespaces/streams/tables/{STREAM}"
    kill_s, loads = time.monotonic() + KILL_INTERVAL_S, []
    while (now := time.monotonic()) < until_s:
        with urllib.request.urlopen(path, timeout=READ_TIMEOUT_S) as answer:
            answer.read()
        loads.append(time.monotonic() - now)
        if is_killing and now > kill_s and (pid := worker_pid(server)) is not None:
            os.kill(pid, signal.SIGKILL)
            kill_s = now + KILL_INTERVAL_S
        time.sleep(max(0.0, now + 1 - time.monotonic()))
    return loads


def _percentiles(values: list[float]) -> tuple[float, float]:
    return (statistics.median(values), max(values)) if values else (float("nan"), float("nan"))


if __name__ == "__main__":
    main()
