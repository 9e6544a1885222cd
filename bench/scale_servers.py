"""Servers on one PostgreSQL: commits per second, what a commit costs, and what each further server adds.

Every server gets the same small load: `CONNECTIONS` connections that write 1 KiB and pause, so that it offers at most
`--requests` requests per second, and flushes at once, so that a request is about a commit. Every server follows the commits
of all others. The objects go to a folder in memory and PostgreSQL has no standby: the metadata path is what is measured.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from bench.configured_server import BearlakeCluster
from bench.errors import BenchError
from bench.figures import Run
from bench.loading import Load, run_loader
from bench.stores import Postgresql
from bench.templates import BatchShape

from bench import processes, report, templates, topics

SERVER_COUNTS = (1, 2, 4, 8, 16)
REQUESTS_PER_S = 20
CONNECTIONS = 2
SHAPE = BatchShape(record_count=1, record_bytes=1024)
SETTINGS: Mapping[str, object] = {"streams.writer.linger_ms": 5, "streams.writer.flush_when_idle": True}
COMMIT_SECONDS = "bearlake_log_commit_seconds"
POSTGRESQL_DEFAULT_CONNECTIONS = 97
"""PostgreSQL's `max_connections` of 100, less the three that are reserved for superusers."""
QUERY_TIMEOUT_S = 10
IDLE_WATCH_S = 3
HEADS = (
    "servers", "offered/s", "commits/s", "p50 ms", "p99 ms", "commit ms", "PostgreSQL ms/commit", "servers ms/commit",
    "idle servers, cores", "sessions", "MB/server", "other cores",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Figures of `server_count` servers."""

    server_count: int
    offered_per_s: float
    run: Run
    commit_ms: float | None
    """Mean duration of a commit as the servers see it; warm-up included, like the following CPU figures."""
    postgresql_cpu_s: float
    servers_cpu_s: float
    commits: float
    idle_cores: float
    """Cores that the servers and PostgreSQL use together without load."""
    session_count: int
    """Connections of the servers to PostgreSQL."""
    server_bytes: int


def measure(
    directory: Path, *, command: Path, server_counts: Sequence[int], requests_per_s: float, seconds: float,
    postgresql_connections: int, idle_watch_s: float = IDLE_WATCH_S,
) -> tuple[list[Row], str | None]:  # fmt: skip
    """Start servers until the largest count runs, and measure at every count; returns the rows, and what failed, if anything.

    At each count the cluster is watched without load for `idle_watch_s`, and then loaded for `seconds`.
    """
    postgresql = Postgresql(directory / "postgresql", has_standby=False, connections_max=postgresql_connections)
    cluster = BearlakeCluster(
        directory, postgresql, s3=None, server_count=min(server_counts), settings=SETTINGS, command=command
    )
    rows: list[Row] = []
    try:
        postgresql.start()
        cluster.start()
        for count in sorted(server_counts):
            print(f"{count} servers", flush=True)
            cluster.add(count - len(cluster.servers))
            idle_cores = processes.cores_used(*_pids(cluster), seconds=idle_watch_s)
            rows.append(_measure(cluster, postgresql, directory / "templates", requests_per_s, seconds, idle_cores))
    except BenchError as error:
        return rows, f"{len(cluster.servers)} servers: {error}"
    finally:
        cluster.stop()
        postgresql.stop()
    return rows, None


def _measure(
    cluster: BearlakeCluster, postgresql: Postgresql, directory: Path, requests_per_s: float, seconds: float,
    idle_cores: float,
) -> Row:  # fmt: skip
    count = len(cluster.servers)
    connections = count * CONNECTIONS
    topic = f"servers-{count}"
    topics.create(cluster.address, topic, connections, {})
    batch = templates.record_batch(SHAPE)
    frames = [templates.produce_request(batch, [part], topic=topic) for part in range(connections)]
    templates.write_templates(directory, frames)
    pause_us = int(CONNECTIONS / requests_per_s * 1e6)
    load = Load(
        templates=directory, connections=connections, depth=1, seconds=seconds, warmup_s=1, pause_us=pause_us,
        payload_bytes=SHAPE.payload_bytes, ports=cluster.ports, spread=True,
    )  # fmt: skip
    parts = cluster.parts
    before = {part: processes.usage(*pids).cpu_s for part, pids in parts.items()}
    seen = _commit_times(cluster)
    run = run_loader(cluster, load, pids=_pids(cluster))
    sum_s, commits = (now - then for now, then in zip(_commit_times(cluster), seen, strict=True))
    used = {part: processes.usage(*pids).cpu_s - before[part] for part, pids in parts.items()}
    return Row(
        server_count=count, offered_per_s=count * requests_per_s, run=run, commits=commits,
        commit_ms=sum_s / commits * 1e3 if commits else None,
        postgresql_cpu_s=used["PostgreSQL"], servers_cpu_s=used["servers"], idle_cores=idle_cores,
        session_count=asyncio.run(_sessions(postgresql.url())),
        server_bytes=processes.proportional_bytes(*parts["servers"]) // count,
    )  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    return report.table(HEADS, [_cells(row) for row in rows], left=())


def sessions_text(rows: Sequence[Row]) -> str:
    """How many servers PostgreSQL's default number of connections serves."""
    most = max(row.session_count / row.server_count for row in rows)
    return (
        f"A server holds up to {most:.1f} sessions: PostgreSQL's default of 100 connections is full "
        f"with {int(POSTGRESQL_DEFAULT_CONNECTIONS / most) + 1} servers."
    )


def _cells(row: Row) -> list[str]:
    run = row.run
    return [
        str(row.server_count),
        report.short(row.offered_per_s),
        report.short(run.commits),
        report.short(run.p50_ms),
        report.short(run.p99_ms),
        report.short(row.commit_ms),
        report.short(row.postgresql_cpu_s / row.commits * 1e3 if row.commits else None),
        report.short(row.servers_cpu_s / row.commits * 1e3 if row.commits else None),
        report.short(row.idle_cores),
        str(row.session_count),
        report.short(row.server_bytes / 1e6),
        report.short(run.other_cores),
    ]


def _pids(cluster: BearlakeCluster) -> list[int]:
    return [pid for pids in cluster.parts.values() for pid in pids]


def _commit_times(cluster: BearlakeCluster) -> tuple[float, float]:
    """Sum of seconds, and count, of all servers' commits so far."""
    sum_s = commits = 0.0
    for server in cluster.servers:
        with urlopen(f"{server.admin}/metrics", timeout=QUERY_TIMEOUT_S) as page:
            text = page.read().decode()
        sum_s += _value(text, f"{COMMIT_SECONDS}_sum")
        commits += _value(text, f"{COMMIT_SECONDS}_count")
    return sum_s, commits


def _value(page: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def _sessions(url: str) -> int:
    """Client sessions of PostgreSQL except this one. Raises BenchError."""
    import asyncpg

    try:
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            connection = await asyncpg.connect(url)
            try:
                return int(await connection.fetchval(
                    "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
                ))  # fmt: skip
            finally:
                await connection.close()
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise BenchError(f"PostgreSQL: {error}") from error
