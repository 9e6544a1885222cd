"""Consumers that read from the beginning: Bearlake reads Parquet files of the table, Apache Kafka reads its page cache.

    python bench/catch_up.py [--records 2000000] [--record-bytes 1024] [--avro] [--partitions 4] [--rounds 3] [--no-kafka]
        [--other PROGRAM] [--json FILE]

Both servers get the same records (Kafka's ProducerPerformance), and Bearlake compacts its records until the WAL is empty. Then
Kafka's ConsumerPerformance reads all records from each server in turn, `--rounds` times; a figure is the median. The compaction worker
is stopped while consumers read, so the server's CPU seconds cover only serving. The first round of Bearlake also decodes what the
cache cannot hold; nothing is warmed up.
The values are random capitals, which zstd compresses to 60 %. With `--avro`, they are orders of a registered schema, about 270 bytes each,
and the data files leave them out (`table.value.mode=elide`): the server encodes each from its typed columns.
`--other` is the program `bearlake` of another version, which is measured in turn with this one.
Goals: at least 1.0 x Kafka's MB/s, and 700 MB per server CPU second; with `--avro`, 250 MB.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import BearlakeServer
from bench.errors import BenchError
from bench.freshness import LakeServer, worker_pid
from bench.loading import JARS
from bench.micro import typed_values
from bench.peer_kafka import KafkaPeer, fetch_jars
from bench.run import MEMORY_ROOT, workspace
from bench.same_records import await_compacted
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import processes, report

TOPIC = "catch-up"
TOOLS = "org.apache.kafka.tools"
TIMEOUT_S = 600
ORDER_COUNT = 100_000
"""Different orders; more than a row group has."""
FLUSH_COUNT = 50_000

Server = BearlakeServer | KafkaPeer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--avro", action="store_true")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--other", type=Path)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            found = measure(root, options)
    except BenchError as error:
        sys.exit(f"catch_up: {error}")
    rows = [[name, *(report.short(value) for value in figures)] for name, figures in found.items()]
    print(report.table(["server", "MB/s", "CPU-s/GB", "MB per CPU-s", "RSS MiB", "faults per MB"], rows))
    ours = found.pop("bearlake")
    for name, peer in found.items():
        print(f"throughput {ours[0] / peer[0]:.2f} x, CPU {ours[1] / peer[1]:.2f} x that of {name}")
    if options.json:
        Path(options.json).write_text(json.dumps({"bearlake": ours, **found}, indent=2) + "\n")


def measure(root: Path, options: argparse.Namespace) -> dict[str, tuple[float, ...]]:
    """Fill the servers, then read each in turn; return the medians by server."""
    fetch_jars()  # the tools are in them
    servers: dict[str, Server] = {"bearlake": LakeServer(root / "lake")}
    if options.other is not None:
        servers["the other program"] = LakeServer(root / "other", command=options.other)
    if not options.no_kafka:
        servers["kafka"] = KafkaPeer(root / "kafka")
    paused: list[int] = []
    try:
        for server in servers.values():
            server.start()
            _fill(server, options)
            if isinstance(server, LakeServer):
                await_compacted(server)
                paused.append(_pause_worker(server))
        runs: dict[str, list[tuple[float, ...]]] = {name: [] for name in servers}
        for _ in range(options.rounds):
            for name, server in servers.items():
                runs[name].append(_read(server, options))
                print(name, *(report.short(value) for value in runs[name][-1]), file=sys.stderr, flush=True)
    finally:
        for worker in paused:
            os.kill(worker, signal.SIGCONT)
        for server in servers.values():
            server.stop()
    return {name: tuple(statistics.median(figures) for figures in zip(*of, strict=True)) for name, of in runs.items()}


def _pause_worker(server: LakeServer) -> int:
    pid = worker_pid(server)
    if pid is None:
        raise BenchError("the compaction worker does not run")
    os.kill(pid, signal.SIGSTOP)
    return pid


def _fill(server: Server, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    configs = {}
    if options.avro and isinstance(server, BearlakeServer):
        configs = {"table.value.mode": "elide"}
        _register(server.listeners)
    admin.create_topics([NewTopic(TOPIC, options.partitions, config=configs)])[TOPIC].result(30)
    if options.avro:
        _produce_orders(server, options)
        return
    sizes = ["--num-records", str(options.records), "--record-size", str(options.record_bytes), "--throughput", "-1"]
    _tool("ProducerPerformance", "--bootstrap-server", server.address, "--topic", TOPIC, *sizes)


def _register(listeners: Mapping[str, str]) -> None:
    """Register the schema of the orders, as the first one: its id is 1."""
    body = json.dumps({"schema": json.dumps(typed_values.BIG)}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{listeners['registry']}/subjects/{TOPIC}-value/versions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        if json.load(answer)["id"] != 1:
            raise BenchError("the schema is not the first one of its registry")


def _produce_orders(server: Server, options: argparse.Namespace) -> None:
    randomness = random.Random(1)
    orders = [b"\0\0\0\0\1" + typed_values.order(randomness, at, is_big=True) for at in range(ORDER_COUNT)]
    producer = Producer({"bootstrap.servers": server.address, "linger.ms": 50, "batch.size": 262_144, "log_level": 0})
    for number in range(options.records):
        producer.produce(TOPIC, orders[number % ORDER_COUNT], partition=number // 64 % options.partitions)
        if number % FLUSH_COUNT == FLUSH_COUNT - 1:
            producer.flush(60)
    if producer.flush(60):
        raise BenchError(f"{server.name} did not acknowledge all records")


def _read(server: Server, options: argparse.Namespace) -> tuple[float, ...]:
    """MB/s that the tool reports, server CPU seconds per GB, MB per CPU second, resident MiB, page faults per MB."""
    before, faults = _usage(server), _fault_count(server)
    count = ["--num-records", str(options.records), "--timeout", "60000"]
    said = _tool(
        "ConsumerPerformance",
        "--bootstrap-server",
        server.address,
        "--topic",
        TOPIC,
        "--group",
        f"g{time.monotonic_ns()}",
        *count,
    )
    used, faults = _usage(server), _fault_count(server) - faults
    last = [line for line in said.splitlines() if line.count(",") >= 9][-1].split(",")
    megabytes, fetch_ms = float(last[2]) * 2**20 / 1e6, float(last[7])
    if int(last[4]) < options.records:
        raise BenchError(f"the consumer got {last[4].strip()} of {options.records} records")
    cpu_s = used.cpu_s - before.cpu_s
    return (
        megabytes / (fetch_ms / 1000),
        cpu_s / megabytes * 1000,
        megabytes / max(cpu_s, 1e-3),
        used.rss_bytes / 2**20,
        faults / megabytes,
    )


def _fault_count(server: Server) -> int:
    """Page faults of the server's own process that needed no input."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7])


def _usage(server: Server) -> processes.Usage:
    """Usage of the server alone, without the paused worker."""
    used = processes.usage(server.pid)
    worker = worker_pid(server) if isinstance(server, BearlakeServer) else None
    if worker is None:
        return used
    other = processes.usage(worker)
    return processes.Usage(cpu_s=used.cpu_s - other.cpu_s, rss_bytes=used.rss_bytes - other.rss_bytes)


def _tool(name: str, *words: str) -> str:
    command = ["java", "-Xmx1g", "-cp", f"{JARS}/*", f"{TOOLS}.{name}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode != 0 or "Exception" in done.stdout:
        raise BenchError(f"{name}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


if __name__ == "__main__":
    main()
