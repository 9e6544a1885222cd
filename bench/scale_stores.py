"""PostgreSQL as the metadata store beside SQLite: what it costs the servers, and how many commits it takes.

The same servers twice: on one PostgreSQL without a standby, and on one SQLite file. The objects go to a folder in memory in both cases.
All connections write batches of 64 KiB as fast as they are acknowledged. The clusters take turns, and their first run does not count.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.cases import KIB, Case
from bench.configured_server import BearlakeCluster
from bench.errors import BenchError
from bench.same_promise import Measured, figures_of, measure
from bench.stores import Postgresql
from bench.templates import BatchShape

from bench import figures, report

SERVER_COUNT = 4
CONNECTIONS_PER_SERVER = 5
RUN_BYTES_MAX = 4 << 30
"""Payload of one run, warm-up included: more than four servers take in as many seconds."""
STORED_BYTES_MAX = 1 << 30
"""Bytes of objects above which a cluster begins anew: much free memory goes back to the host, and costs more when it is used again."""
STORES = ("SQLite", "PostgreSQL")
HEADS = (
    "store", "MB/s [min-max]", "p50 ms", "p99 ms", "servers CPU-s/GB", "CPU-s/GB", "commits/s", "MB/object", "other cores",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The runs of one store."""

    store: str
    runs: list[Measured] = field(default_factory=list)

    @property
    def servers_cpu_s_per_gb(self) -> float:
        """CPU seconds of the servers alone, per 10^9 bytes of payload."""
        return figures.median([measured.run.cpu_s_per_gb * measured.share("servers") for measured in self.runs])


def measure_all(
    directory: Path, *, command: Path, server_count: int, seconds: float, repetitions: int
) -> tuple[list[Row], str | None]:
    """Measure both stores in turn; returns the rows, and what failed, if anything."""
    case = Case(
        name="64k", title="produce 64 KiB", shape=BatchShape(record_count=64, record_bytes=KIB),
        connections=server_count * CONNECTIONS_PER_SERVER,
    )  # fmt: skip
    rows: list[Row] = []
    try:
        with contextlib.ExitStack() as running:
            clusters = [_start(directory / store, store, command, server_count, running) for store in STORES]
            rows = [Row(store=store) for store in STORES]
            for number in range(repetitions + 1):
                for cluster, row in zip(clusters, rows, strict=True):
                    measured = measure(
                        cluster, case, directory / "templates", seconds=seconds, warmup_s=1, bytes_max=RUN_BYTES_MAX
                    )
                    print(report.line(f"{cluster.name:10}", measured.run), flush=True)
                    if number:
                        row.runs.append(measured)
    except BenchError as error:
        return [row for row in rows if row.runs], str(error)
    return rows, None


def _start(place: Path, store: str, command: Path, count: int, running: contextlib.ExitStack) -> BearlakeCluster:
    place.mkdir()
    postgresql = Postgresql(place / "postgresql", has_standby=False) if store == "PostgreSQL" else None
    if postgresql is not None:
        running.callback(postgresql.stop)
        postgresql.start()
    cluster = BearlakeCluster(
        place, postgresql, s3=None, server_count=count, settings={}, command=command, name=store,
        stored_bytes_max=STORED_BYTES_MAX,
    )  # fmt: skip
    running.callback(cluster.stop)
    cluster.start()
    return cluster


def table(rows: Sequence[Row]) -> str:
    """The medians of every store, and the ratio of the servers' CPU."""
    text = report.table(HEADS, [_cells(row) for row in rows], left=(0,))
    if len(rows) < len(STORES):
        return text
    ratio = rows[1].servers_cpu_s_per_gb / rows[0].servers_cpu_s_per_gb
    return f"{text}\n\nservers' CPU on PostgreSQL / on SQLite: {ratio:.2f} (goal <= 1.1)"


def _cells(row: Row) -> list[str]:
    found = {**figures_of(row.runs), "servers CPU-s/GB": report.short(row.servers_cpu_s_per_gb)}
    return [row.store, *(found[head] for head in HEADS[1:])]
