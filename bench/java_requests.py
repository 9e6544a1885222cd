"""How many requests does the Java producer send, and what does each cost the server? Kafka and Bearlake in turn.

    python bench/java_requests.py [--rounds 4] [--records 700000] [--bearlake PROGRAM]      (three minutes)

The load is that of the case `java` of `run.py`. The requests and their bytes are the producer's own count, which it prints at its end. A
producer whose server answers sooner sends smaller requests, so figures per request explain what figures per record hide. The first
round of each server does not count. CPU seconds include the producer's start.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND, BearlakeServer
from bench.cases import BY_NAME
from bench.errors import BenchError
from bench.loading import JAVA_TIMEOUT_S, Server, java_figures
from bench.peer_kafka import JARS, KafkaPeer
from bench.run import MEMORY_ROOT, workspace

from bench import report, run, topics

CASE = BY_NAME["java"]
METRIC = re.compile(r"^producer-metrics:(?P<name>[\w-]+):\{[^}]*\} *: *(?P<value>[\d.E+-]+)$", re.MULTILINE)
HEADS = (
    "server", "records/s", "requests/s", "records per request", "bytes per request", "CPU us/record: user", "system",
    "CPU us/request", "objects/s",
)  # fmt: skip


def main() -> None:
    """Command line: see the head of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--records", type=int, default=700_000)
    parser.add_argument(
        "--peer-warmup", type=float, default=45, metavar="S", help="mixed load for Kafka's compiler first"
    )
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")
    options = parser.parse_args()
    rounds: dict[str, list[Mapping[str, float]]] = {}
    try:
        with workspace(MEMORY_ROOT) as directory:
            servers: list[Server] = [
                KafkaPeer(directory / "kafka"),
                BearlakeServer(directory / "bearlake", command=options.bearlake),
            ]
            try:
                for server in servers:
                    server.start()
                run.warm(servers[0], run.Effort(peer_warmup_s=options.peer_warmup), directory)
                for number in range(options.rounds):
                    for server in servers:
                        found = measure(server, f"requests-{number}", options.records)
                        if number:
                            rounds.setdefault(server.name, []).append(found)
            finally:
                for server in servers:
                    server.stop()
    except BenchError as error:
        sys.exit(f"java_requests: {error}")
    rows = [
        [name, *(report.short(statistics.median([figure[head] for figure in found])) for head in HEADS[1:])]
        for name, found in rounds.items()
    ]
    print(report.table(HEADS, rows))


def measure(server: Server, topic: str, records: int) -> dict[str, float]:
    """Let the producer send `records` records; returns the figures by `HEADS`."""
    server.prepare_next_run()
    topics.create(server.address, topic, CASE.partition_count, {})
    command = ["java", "-Xmx512m", "-cp", f"{JARS}/*", "org.apache.kafka.tools.ProducerPerformance", "--print-metrics"]
    command += [
        "--bootstrap-server",
        server.address,
        "--topic",
        topic,
        "--throughput",
        "-1",
        "--num-records",
        str(records),
    ]
    command += ["--record-size", str(CASE.shape.record_bytes), "--reporting-interval", "600000"]
    command += ["--command-property", *(f"{key}={value}" for key, value in CASE.java_properties.items())]
    user, system = _seconds(server.pid)
    objects, begin = server.counters(), time.monotonic()
    out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=JAVA_TIMEOUT_S).stdout
    seconds, after, (user_end, system_end) = time.monotonic() - begin, server.counters(), _seconds(server.pid)
    topics.delete(server.address, topic)
    steady = java_figures(out)
    metrics = {found["name"]: float(found["value"]) for found in METRIC.finditer(out)}
    if steady is None or not metrics.get("request-total"):
        raise BenchError("ProducerPerformance printed no figures")
    requests = metrics["request-total"]
    user, system = user_end - user, system_end - system
    put = (after.objects or 0) - (objects.objects or 0) if after and objects else 0
    values = (
        steady["rate"], requests * steady["rate"] / records, records / requests, metrics["request-size-avg"],
        user / records * 1e6, system / records * 1e6, (user + system) / requests * 1e6, put / seconds,
    )  # fmt: skip
    return dict(zip(HEADS[1:], values, strict=True))


def _seconds(pid: int) -> tuple[float, float]:
    """CPU seconds of a process so far: in user mode, in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks, int(fields[12]) / ticks


if __name__ == "__main__":
    main()
