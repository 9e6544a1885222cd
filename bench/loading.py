"""Loads a server and measures it, with our C load generators or the Java client's own ProducerPerformance.

The server's CPU time is read when the loader reports the start and the end of its window, so the loader's start and the
warm-up do not count. The Java tool has no such reports: its server CPU time covers the whole run, and so does the payload by
which it is divided.
"""

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.bearlake_server import Counters
from bench.errors import BenchError
from bench.figures import Run
from bench.java_peer import CACHE
from bench.peer_kafka import JARS

from bench import processes

SOURCES = Path(__file__).resolve().parent / "loader"
COMPILE = ("gcc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-pthread")
SPARE_S = 60
"""A loader that exceeds its window by this time is killed."""
JAVA_TIMEOUT_S = 600
MIB = 1 << 20
JAVA_LINE = re.compile(
    r"^(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec \((?P<mib>[\d.]+) MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency, (?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th",
    re.MULTILINE,
)


class Server(Protocol):
    """A server under measurement: the peer or Bearlake."""

    @property
    def name(self) -> str:
        """Name of its column in the result."""

    @property
    def address(self) -> str:
        """`host:port` of the loaded listener."""

    @property
    def pid(self) -> int:
        """Process id of the root of its process tree."""

    def start(self) -> None:
        """Start and wait until it serves."""

    def stop(self) -> None:
        """Stop and wipe."""

    def prepare_next_run(self) -> None:
        """Called between runs: reduce its disk usage."""

    def counters(self) -> Counters | None:
        """Objects and commits so far; None if the server has no such counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Options of a load generator; see loader/options.h."""

    templates: Path
    connections: int
    depth: int
    seconds: float
    warmup_s: float = 0
    pause_us: int = 0
    requests_max: int = 1 << 40
    payload_bytes: int = 0
    idempotent: bool = False
    spread: bool = False
    """Whether the first requests of the connections are spread evenly over one pause."""
    ports: Sequence[int] = ()
    """Ports of several servers: connection n is made to port n modulo their number. Empty: the port of the server's address."""
    program: str = "loader"
    """Which load generator: the name of its source file."""

    def words(self, port: int) -> list[str]:
        """Command-line options."""
        words = [f"--port={number}" for number in self.ports or (port,)]
        words += [f"--templates={self.templates}", f"--connections={self.connections}"]
        words += [f"--depth={self.depth}", f"--seconds={self.seconds}", f"--warmup={self.warmup_s}"]
        words += [f"--pause-us={self.pause_us}", f"--requests-max={self.requests_max}"]
        words += [f"--payload={self.payload_bytes}"]
        words += ["--spread"] if self.spread else []
        return [*words, "--idempotent"] if self.idempotent else words


def build_loader(name: str = "loader") -> Path:
    """Compile the load generator `name` into `.cache/bench/` if its sources have changed; returns the program."""
    sources = sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.c")])
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    program = CACHE / f"{name}-{state}"
    if not program.exists():
        if not shutil.which(COMPILE[0]):
            raise BenchError("the load generator needs gcc")
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(f".{os.getpid()}")  # several processes may compile it at the same time
        subprocess.run([*COMPILE, "-o", str(fresh), str(SOURCES / f"{name}.c")], check=True, timeout=120)
        fresh.rename(program)
    return program


def run_loader(server: Server, load: Load, *, pids: Sequence[int] = ()) -> Run:
    """Load `server` and measure. Raises BenchError when the loader fails or any partition answered with an error.

    `pids`: roots of the process trees whose usage counts; by default the server's.
    """
    roots = tuple(pids) or (server.pid,)
    host, port = server.address.rsplit(":", 1)
    before = server.counters()
    command = [str(build_loader(load.program)), f"--host={host}", *load.words(int(port))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        marks: list[tuple[processes.Usage, float]] = []
        complaints: list[str] = []
        try:
            for line in process.stderr:  # the loader's own timeouts limit this wait
                if line in ("start\n", "end\n"):
                    marks.append((processes.usage(*roots), processes.busy_s()))
                else:
                    complaints.append(line.strip())
            out, _ = process.communicate(timeout=load.warmup_s + load.seconds + SPARE_S)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise BenchError(" ".join(complaints) or f"the loader exited with code {process.returncode}")
    found = json.loads(out)
    if found["errors"]:
        raise BenchError(
            f"{found['errors']} partitions were answered with an error, the first with {found['first_error']}"
        )
    if len(marks) != 2 or not found["requests"]:
        raise BenchError("no request was answered in the measured window")
    return _run_of(found, marks, _rates(before, server.counters(), found["all_seconds"]))


def _run_of(found: dict[str, Any], marks: Sequence[tuple[processes.Usage, float]], rates: Counters) -> Run:
    (use_before, busy_before), (use_after, busy_after) = marks
    server_cpu_s = use_after.cpu_s - use_before.cpu_s
    others_s = busy_after - busy_before - server_cpu_s - found["client_cpu_s"]
    return Run(
        seconds=found["seconds"],
        requests=int(found["requests"]),
        payload_bytes=int(found["bytes"]),
        mb_per_s=found["mb_per_s"],
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
        p999_ms=found["p999_ms"],
        client_cpu_s=found["client_cpu_s"],
        server_cpu_s=server_cpu_s,
        cpu_payload_bytes=int(found["bytes"]),
        cpu_requests=int(found["requests"]),
        rss_bytes=use_after.rss_bytes,
        other_cores=max(0.0, others_s / found["seconds"]),
        objects=rates.objects,
        object_bytes=rates.object_bytes,
        commits=rates.commits,
    )


def run_java_producer(
    server: Server, *, topic: str, records: int, warmup_records: int, record_bytes: int, properties: Mapping[str, str]
) -> Run:
    """Let Kafka's ProducerPerformance send `warmup_records` + `records` records as fast as it can.

    Rate and latencies are those that the tool reports after its warm-up; server CPU is that of the whole run.
    """
    command = ["java", "-Xmx512m", "-cp", f"{JARS}/*", "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--bootstrap-server", server.address, "--topic", topic, "--throughput", "-1"]
    total = warmup_records + records
    command += ["--num-records", str(total), "--warmup-records", str(warmup_records)]
    command += ["--record-size", str(record_bytes), "--reporting-interval", "600000"]
    if properties:
        command += ["--command-property", *(f"{key}={value}" for key, value in properties.items())]
    before, used, busy, client = server.counters(), processes.usage(server.pid), processes.busy_s(), _children_cpu_s()
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=JAVA_TIMEOUT_S)
    seconds = time.monotonic() - begin
    use, busy, client = processes.usage(server.pid), processes.busy_s() - busy, _children_cpu_s() - client
    rates = _rates(before, server.counters(), seconds)
    steady = java_figures(done.stdout)
    if done.returncode != 0 or steady is None or "Exception" in done.stdout + done.stderr:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise BenchError(f"ProducerPerformance: {' '.join(last) or done.returncode}")
    server_cpu_s = use.cpu_s - used.cpu_s
    return Run(
        seconds=records / steady["rate"],
        requests=records,
        payload_bytes=records * record_bytes,
        mb_per_s=steady["mib"] * MIB / 1e6,
        p50_ms=steady["p50"],
        p99_ms=steady["p99"],
        p999_ms=steady["p999"],
        client_cpu_s=client,
        server_cpu_s=server_cpu_s,
        cpu_payload_bytes=total * record_bytes,
        cpu_requests=total,
        rss_bytes=use.rss_bytes,
        other_cores=max(0.0, (busy - server_cpu_s - client) / seconds),
        objects=rates.objects,
        object_bytes=rates.object_bytes,
        commits=rates.commits,
    )


def java_figures(output: str) -> dict[str, float] | None:
    """Figures of the last summary line that ProducerPerformance printed (the steady state comes last)."""
    lines = list(JAVA_LINE.finditer(output))
    return {key: float(value) for key, value in lines[-1].groupdict().items()} if lines else None


def _rates(before: Counters | None, after: Counters | None, seconds: float) -> Counters:
    """Objects, bytes and commits per second between two readings."""

    def rate(first: float | None, last: float | None) -> float | None:
        return None if last is None else (last - (first or 0)) / seconds

    if before is None or after is None:
        return Counters(objects=None, object_bytes=None, commits=None)
    return Counters(
        objects=rate(before.objects, after.objects),
        object_bytes=rate(before.object_bytes, after.object_bytes),
        commits=rate(before.commits, after.commits),
    )


def _children_cpu_s() -> float:
    """CPU seconds of our finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
