"""Consumers that read from the beginning: Bearlake reads Parquet files of the table, Apache Kafka reads its page cache.

    python bench/catch_up.py [--records 2000000] [--record-bytes 1024] [--partitions 4] [--rounds 3] [--json FILE]

Both servers get the same records (Kafka's ProducerPerformance), and Bearlake compacts its records until the WAL is empty. Then
Kafka's ConsumerPerformance reads all records from each server in turn, `--rounds` times; a figure is the median. The compaction worker
is stopped while consumers read, so the server's CPU seconds cover only serving. The first round of Bearlake also decodes what the
cache cannot hold; nothing is warmed up.
The values are random capitals, which zstd compresses to 60 %.
Goals: at least 1.0 x Kafka's MB/s, and 700 MB per server CPU second.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import BearlakeServer
from bench.errors import BenchError
from bench.freshness import LakeServer, worker_pid
from bench.loading import JARS
from bench.peer_kafka import KafkaPeer
from bench.run import MEMORY_ROOT, workspace
from bench.same_records import await_compacted
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import processes, report

TOPIC = "catch-up"
TOOLS = "org.apache.kafka.tools"
TIMEOUT_S = 600


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            found = measure(root, options)
    except BenchError as error:
        sys.exit(f"catch_up: {error}")
    rows = [[name, *(report.short(value) for value in figures)] for name, figures in found.items()]
    print(report.table(["server", "MB/s", "CPU-s/GB", "MB per CPU-s", "RSS MiB"], rows))
    ours, peer = found["bearlake"], found["kafka"]
    print(f"throughput {ours[0] / peer[0]:.2f} x, CPU {ours[1] / peer[1]:.2f} x Kafka's")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")


def measure(root: Path, options: argparse.Namespace) -> dict[str, tuple[float, ...]]:
    """Fill both servers, then read both in turn; return the medians by server."""
    lake, peer = LakeServer(root / "lake"), KafkaPeer(root / "kafka")
    servers: list[BearlakeServer | KafkaPeer] = [lake, peer]
    for server in servers:
        server.start()
    try:
        for server in servers:
            _fill(server, options)
        await_compacted(lake)
        stopped = worker_pid(lake)
        assert stopped is not None, "the compaction worker does not run"
        os.kill(stopped, signal.SIGSTOP)
        try:
            runs: dict[str, list[tuple[float, ...]]] = {server.name: [] for server in servers}
            for _ in range(options.rounds):
                for server in servers:
                    runs[server.name].append(_read(server, options))
        finally:
            os.kill(stopped, signal.SIGCONT)
    finally:
        for server in servers:
            server.stop()
    return {name: tuple(statistics.median(figures) for figures in zip(*of, strict=True)) for name, of in runs.items()}


def _fill(server: BearlakeServer | KafkaPeer, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, options.partitions)])[TOPIC].result(30)
    sizes = ["--num-records", str(options.records), "--record-size", str(options.record_bytes), "--throughput", "-1"]
    _tool("ProducerPerformance", "--bootstrap-server", server.address, "--topic", TOPIC, *sizes)


def _read(server: BearlakeServer | KafkaPeer, options: argparse.Namespace) -> tuple[float, ...]:
    """MB/s that the tool reports, server CPU seconds per GB, MB per CPU second, resident MiB."""
    before = _usage(server)
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
    used = _usage(server)
    last = [line for line in said.splitlines() if line.count(",") >= 9][-1].split(",")
    megabytes, fetch_ms = options.records * options.record_bytes / 1e6, float(last[7])
    if int(last[4]) < options.records:
        raise BenchError(f"the consumer got {last[4].strip()} of {options.records} records")
    cpu_s = used.cpu_s - before.cpu_s
    return megabytes / (fetch_ms / 1000), cpu_s / megabytes * 1000, megabytes / max(cpu_s, 1e-3), used.rss_bytes / 2**20


def _usage(server: BearlakeServer | KafkaPeer) -> processes.Usage:
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
