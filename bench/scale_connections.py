"""Connections of one Kafka server: what an idle one holds, and what a request costs when many are open.

Idle connections send one ApiVersions request and then nothing. Busy connections write 1 KiB, wait for the answer, and pause so long
that all of them together send about `--requests` requests per second. Their number does not change this rate, so the cost
of a request shows what the number of connections adds.
"""

import resource
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.configured_server import ConfiguredServer
from bench.errors import BenchError
from bench.figures import Run
from bench.loading import Load, run_loader
from bench.peer_kafka import API_VERSIONS_V0
from bench.templates import BatchShape

from bench import processes, report, templates, topics

BUSY_COUNTS = (10, 100, 1_000)
IDLE_COUNT = 10_000
REQUESTS_PER_S = 1_000
SHAPE = BatchShape(record_count=1, record_bytes=1024)
PARTITION_COUNT = 10
FILES_RESERVE = 500
"""Open files that a process needs for other things than client connections."""
OPENED_AT_ONCE = 500
ANSWER_TIMEOUT_S = 30
IDLE_WATCH_S = 5
HEADS = (
    "idle connections", "busy connections", "requests/s", "p50 ms", "p99 ms", "CPU us/request", "server MB", "KB per connection",
    "idle CPU %", "other cores",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Figures with `idle` idle and `busy` busy connections; `run` None: none was busy."""

    idle: int
    busy: int
    run: Run | None
    server_bytes: int
    """Memory of the server process (Linux: PSS) at the end, without the kernel's socket buffers."""
    bytes_per_connection: float | None
    idle_cpu: float | None = None
    """Share of a core that the server uses while no connection is busy."""


class IdleClients:
    """Open connections that send nothing; closed by `close`."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def open(self, address: str, count: int) -> None:
        """Open `count` connections, each with one answered request. Raises BenchError if a connection is refused or closed."""
        host, port = address.rsplit(":", 1)
        for start in range(0, count, OPENED_AT_ONCE):
            fresh = []
            try:
                for _ in range(min(OPENED_AT_ONCE, count - start)):
                    client = socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S)
                    self._sockets.append(client)
                    fresh.append(client)
                    client.sendall(API_VERSIONS_V0)
                for client in fresh:
                    _read_frame(client)
            except OSError as error:
                raise BenchError(f"connection {len(self._sockets):,} of {count:,} failed: {error}") from error

    def close(self) -> None:
        """Close all."""
        while self._sockets:
            self._sockets.pop().close()


def require_files(connection_count: int) -> None:
    """Raise our limit of open files to its maximum; the server inherits it. Raises BenchError if it is too low."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most < connection_count + FILES_RESERVE:
        raise BenchError(
            f"{connection_count:,} connections need {connection_count + FILES_RESERVE:,} open files, `ulimit -Hn` is {most:,}"
        )


def measure(
    directory: Path,
    *,
    command: Path,
    idle_count: int,
    busy_counts: Sequence[int],
    requests_per_s: float,
    seconds: float,
    idle_watch_s: float = IDLE_WATCH_S,
) -> list[Row]:
    """Measure one server with only busy connections, with only idle ones, and with both. Raises BenchError.

    Each step with busy connections takes `seconds`; the idle ones are watched for `idle_watch_s`.
    """
    require_files(idle_count + max(busy_counts))
    connections_max = 2 * (idle_count + max(busy_counts))
    settings = {"kafka.connections_max": connections_max, "kafka.address_connections_max": connections_max}
    server = ConfiguredServer(directory / "bearlake", command=command, settings=settings)
    clients = IdleClients()
    try:
        server.start()
        load = _Load(server, directory / "templates", requests_per_s, seconds)
        rows = []
        for count in busy_counts:
            _say(f"{count:,} busy connections")
            run = load.run(count)
            rows.append(Row(
                idle=0, busy=count, run=run, server_bytes=processes.proportional_bytes(server.pid), bytes_per_connection=None,
            ))  # fmt: skip
        _say(f"{idle_count:,} idle connections")
        before = processes.proportional_bytes(server.pid)
        clients.open(server.address, idle_count)
        after = processes.proportional_bytes(server.pid)
        rows.append(Row(
            idle=idle_count, busy=0, run=None, server_bytes=after, bytes_per_connection=(after - before) / idle_count,
            idle_cpu=processes.cores_used(server.pid, seconds=idle_watch_s),
        ))  # fmt: skip
        _say(f"{busy_counts[-1]:,} busy connections beside them")
        run = load.run(busy_counts[-1])
        rows.append(Row(
            idle=idle_count, busy=busy_counts[-1], run=run, server_bytes=processes.proportional_bytes(server.pid),
            bytes_per_connection=None,
        ))  # fmt: skip
        return rows
    finally:
        clients.close()
        server.stop()


class _Load:
    """Busy connections that write to one topic."""

    def __init__(self, server: ConfiguredServer, directory: Path, requests_per_s: float, seconds: float) -> None:
        self._server, self._directory = server, directory
        self._requests_per_s, self._seconds = requests_per_s, seconds
        topics.create(server.address, "connections", PARTITION_COUNT, {})
        batch = templates.record_batch(SHAPE)
        self._frames = [
            templates.produce_request(batch, [part], topic="connections") for part in range(PARTITION_COUNT)
        ]

    def run(self, count: int) -> Run:
        """Let `count` connections write."""
        templates.write_templates(self._directory, [self._frames[at % PARTITION_COUNT] for at in range(count)])
        pause_us = int(count / self._requests_per_s * 1e6)
        load = Load(
            templates=self._directory, connections=count, depth=1, seconds=self._seconds, warmup_s=1 + pause_us / 1e6,
            pause_us=pause_us, payload_bytes=SHAPE.payload_bytes, spread=True,
        )  # fmt: skip
        return run_loader(self._server, load)


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    return report.table(HEADS, [_cells(row) for row in rows], left=())


def _cells(row: Row) -> list[str]:
    run = row.run
    per_connection = None if row.bytes_per_connection is None else row.bytes_per_connection / 1e3
    return [
        f"{row.idle:,}",
        f"{row.busy:,}",
        report.short(run.requests_per_s if run else None),
        report.short(run.p50_ms if run else None),
        report.short(run.p99_ms if run else None),
        report.short(run.cpu_us_per_request if run else None),
        report.short(row.server_bytes / 1e6),
        report.short(per_connection),
        report.short(None if row.idle_cpu is None else row.idle_cpu * 100),
        report.short(run.other_cores if run else None),
    ]


def _read_frame(client: socket.socket) -> None:
    with client.makefile("rb") as stream:
        prefix = stream.read(4)
        if len(prefix) < 4:
            raise ConnectionError("closed by the server")
        size = struct.unpack(">i", prefix)[0]
        if len(stream.read(size)) < size:
            raise ConnectionError("closed by the server")


def _say(text: str) -> None:
    print(text, flush=True)
