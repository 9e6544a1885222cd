"""`bearlake import kafka` from a real Apache Kafka on this machine: MB/s, and MB per CPU second of the import.

    python bench/import_kafka.py [--records 1000000] [--record-bytes 1024] [--partitions 8] [--codec none] [--rounds 3] [--verify]

Kafka gets the records once (its ProducerPerformance). Each round starts Bearlake with empty stores in memory (`/dev/shm`) and imports all
records by the command that users run; the import's process start is included. The server only holds the stores: an import writes to
them itself, so its CPU seconds are those of its own process. `--verify` also compares all records, with figures of their own.
A figure is the median of the rounds. Other load of the machine is shown: figures are good only if it is near 0.
Goal: 150 MB per CPU second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND, BearlakeServer
from bench.errors import BenchError
from bench.loading import JARS
from bench.peer_kafka import KafkaPeer
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import processes, report

TOPIC = "import"
TIMEOUT_S = 600
HEADS = ("round", "MB", "s", "MB/s", "CPU-s", "MB per CPU-s", "RSS MiB", "other cores")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--codec", default="none", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            found = measure(root, options)
    except BenchError as error:
        sys.exit(f"import_kafka: {error}")
    print(report.table(list(HEADS), [[str(number), *map(report.short, row)] for number, row in enumerate(found, 1)]))
    medians = [statistics.median(column) for column in zip(*found, strict=True)]
    print(f"median: {medians[2]:.0f} MB/s, {medians[4]:.0f} MB per CPU-s")
    if options.json:
        Path(options.json).write_text(json.dumps([dict(zip(HEADS[1:], row, strict=True)) for row in found]) + "\n")


def measure(root: Path, options: argparse.Namespace) -> list[tuple[float, ...]]:
    """Fill Kafka, then import in each round; return the figures of each round."""
    peer = KafkaPeer(root / "kafka")
    peer.start()
    try:
        _fill(peer, options)
        return [_round(root, peer, options) for _ in range(options.rounds)]
    finally:
        peer.stop()


def _fill(peer: KafkaPeer, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": peer.address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, options.partitions)])[TOPIC].result(30)
    words = ["--num-records", options.records, "--record-size", options.record_bytes, "--throughput", -1]
    tool = "org.apache.kafka.tools.ProducerPerformance"
    props = ["--producer-props", f"compression.type={options.codec}", "batch.size=65536", "linger.ms=20"]
    line = ["java", "-Xmx1g", "-cp", f"{JARS}/*", tool, "--bootstrap-server", peer.address, "--topic", TOPIC]
    done = subprocess.run(
        [*line, *map(str, words), *props], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    if done.returncode != 0 or "Exception" in done.stdout:
        raise BenchError(f"ProducerPerformance: {(done.stderr or done.stdout).strip()[-500:]}")


def _round(root: Path, peer: KafkaPeer, options: argparse.Namespace) -> tuple[float, ...]:
    server = BearlakeServer(root / "bearlake")
    server.start()
    try:
        words = [COMMAND, "import", "kafka", "--from", peer.address, "--topics", TOPIC, "--json"]
        words += ["--data-dir", server.directory / "data", *(["--verify"] if options.verify else [])]
        busy, began = processes.busy_s(), time.monotonic()
        others = processes.usage(peer.pid).cpu_s + processes.usage(server.pid).cpu_s
        with (root / "import.json").open("wb") as out:
            process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=out)
            _, status, usage = os.wait4(process.pid, 0)
        seconds, cpu_s = time.monotonic() - began, usage.ru_utime + usage.ru_stime
        known = cpu_s + processes.usage(peer.pid).cpu_s + processes.usage(server.pid).cpu_s - others
        found = json.loads((root / "import.json").read_text()) if status == 0 else {}
        if status != 0 or found["lag"] != 0:
            raise BenchError(f"the import ended with status {status}, {found.get('ended')}")
        megabytes = found["copied_bytes"] / 1e6
        other_cores = max(0.0, processes.busy_s() - busy - known) / seconds
        rss = usage.ru_maxrss / 1024
        return megabytes, seconds, megabytes / seconds, cpu_s, megabytes / cpu_s, rss, other_cores
    finally:
        server.stop()


if __name__ == "__main__":
    main()
