"""Spark reads a stream: the data source `bearlake` from the stores, and Spark's own Kafka source from our Kafka port.

    python bench/spark_read.py [--records 2000000] [--record-bytes 100] [--partitions 4] [--rounds 3] [--tail] [--kafka] [--json FILE]

Both read the same records in one Spark session with two cores, all columns, into Spark's sink `noop`, in turn. The CPU seconds are those of
Spark (JVM and Python workers) and of the server, so reading through a server counts in full. The first round of each warms up and does not
count; a figure is the median of the others. A round must take less than a minute: Spark ends Python workers that are idle for longer, and
their CPU seconds are lost. All is read from Parquet files; with `--tail`, compaction does not run, and all is read from the log.
With `--kafka`, Apache Kafka has the same records, and Spark's Kafka source reads them there, too.
The jars of Spark's Kafka source come from Maven, as for `tests/spark`. Goal: at least 1.5 times the records per CPU second.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from bench.bearlake_server import BearlakeServer
from bench.errors import BenchError
from bench.freshness import LakeServer, worker_pid
from bench.peer_kafka import KafkaPeer
from bench.run import MEMORY_ROOT, workspace
from bench.same_records import await_compacted
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import report
from fixtures.spark_programs import jars, program, said

TOPIC = "spark-read"
FLUSH_COUNT = 50_000

READS = """
import os, time
from bench import processes
for _ in range(given["rounds"]):
    for name, source, options, pid in given["reads"]:
        before, began = processes.usage(os.getpid(), pid).cpu_s, time.monotonic()
        rows = spark.read.format(source).options(**options, subscribe=given["topic"], startingOffsets="earliest").load()
        rows.write.format("noop").mode("overwrite").save()
        seconds = time.monotonic() - began
        say("READ", [name, seconds, processes.usage(os.getpid(), pid).cpu_s - before])
say("COUNTS", [spark.read.format(source).options(**options, subscribe=given["topic"], startingOffsets="earliest").load().count()
    for _, source, options, _ in given["reads"]])
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tail", action="store_true")
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            found = measure(root, options)
    except BenchError as error:
        sys.exit(f"spark_read: {error}")
    rows = [[name, *(report.short(value) for value in figures)] for name, figures in found.items()]
    print(report.table(["source", "records/s", "records per CPU-s", "CPU-s"], rows))
    ours = found.pop("bearlake, from the stores")
    for name, figures in found.items():
        print(f"records per CPU-s: {ours[1] / figures[1]:.2f} x {name}")
    if options.json:
        Path(options.json).write_text(json.dumps({"ours": ours, **found}, indent=2) + "\n")


def measure(root: Path, options: argparse.Namespace) -> dict[str, tuple[float, ...]]:
    """Fill the servers, read from each; return the medians by source."""
    lake = BearlakeServer(root / "lake") if options.tail else LakeServer(root / "lake")
    servers: list[BearlakeServer | KafkaPeer] = [lake, *([KafkaPeer(root / "kafka")] if options.kafka else [])]
    for server in servers:
        server.start()
    paused = None
    try:
        for server in servers:
            _fill(server, options)
        if isinstance(lake, LakeServer):
            await_compacted(lake)
            paused = worker_pid(lake)
            assert paused is not None, "the compaction worker does not run"
            os.kill(paused, signal.SIGSTOP)
        stores = {"dataDir": str(lake.directory / "data")}
        reads = [("bearlake, from the stores", "bearlake", stores, lake.pid)]
        for server in servers:
            name = f"Spark's Kafka source, from {server.name}"
            reads.append((name, "kafka", {"kafka.bootstrap.servers": server.address}, server.pid))
        return _read(root, reads, options)
    finally:
        if paused is not None:
            os.kill(paused, signal.SIGCONT)
        for server in servers:
            server.stop()


def _fill(server: BearlakeServer | KafkaPeer, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, options.partitions)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": server.address, "linger.ms": 50, "batch.size": 262_144})
    noise = os.urandom(1 << 20)
    for number in range(options.records):
        at = number * 7919 % (len(noise) - options.record_bytes)
        key = b"key-%d" % (number % 1000)
        producer.produce(TOPIC, noise[at : at + options.record_bytes], key, partition=number // 64 % options.partitions)
        if number % FLUSH_COUNT == FLUSH_COUNT - 1:
            producer.flush(60)
    if producer.flush(60):
        raise BenchError(f"{server.name} did not acknowledge all records")


def _read(
    root: Path, reads: Sequence[tuple[str, str, dict[str, str], int]], options: argparse.Namespace
) -> dict[str, tuple[float, ...]]:
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name, *_ in reads}
    path = f"{Path(__file__).resolve().parents[1]}"
    more = {"reads": list(reads), "rounds": options.rounds + 1, "topic": TOPIC}
    text = f"import sys\nsys.path.insert(0, {path!r})\n{READS}"
    with program(text, root, {}, with_jars=jars(), conf={"spark.driver.memory": "1g"}, **more) as query:
        for _ in range(len(reads) * (options.rounds + 1)):
            name, seconds, cpu_s = said(query, "READ", root)
            print(f"{name}: {seconds:.2f} s, {cpu_s:.2f} CPU-s", file=sys.stderr, flush=True)
            rounds[name].append((seconds, cpu_s))
        counts = said(query, "COUNTS", root)
    if set(counts) != {options.records}:
        raise BenchError(f"the sources have {counts} records instead of {options.records}")
    found = {}
    for name, measured in rounds.items():
        seconds, cpu_s = (statistics.median(column) for column in zip(*measured[1:], strict=True))
        found[name] = (options.records / seconds, options.records / cpu_s, cpu_s)
    return found


if __name__ == "__main__":
    try:
        main()
    except subprocess.SubprocessError as error:
        sys.exit(f"spark_read: {error}")
