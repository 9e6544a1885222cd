"""Inspects a PostgreSQL store without changing it: version, durability, standbys, rights, connections, layout and round trips.

The rules are those of docs/operations.md and docs/correctness.md, "Assumptions".
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bearlake.metadata.inspection import Finding, Inspection, failure, layout_finding, ok, skipped, warning
from bearlake.metadata.postgresql.database import Database, Session, split_url
from bearlake.metadata.postgresql.layout import OLDEST, VERSION
from bearlake.metadata.postgresql.migrate import HAS_TABLE
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import DURABLE

VERSION_MIN = 14
ROUND_TRIP_COUNT = 7
ROUND_TRIP_MS_MAX = 5.0
"""A commit takes several round trips, so a slower network shows in every acknowledgement."""

MORE_CONNECTIONS = 2
"""Connections of a process beyond its pools: one that listens for hints, and one that ends lost sessions."""

_FACTS = """
select current_setting('server_version_num')::int / 10000,
       current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'),
       (select count(*) from pg_stat_replication r where r.sync_state in ('sync', 'quorum')),
       pg_has_role(current_user, 'pg_read_all_stats', 'usage'),
       current_setting('fsync') = 'on',
       current_setting('full_page_writes') = 'on',
       current_setting('autovacuum') = 'on',
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'),
       pg_is_in_recovery(),
       has_database_privilege(current_database(), 'create'),
       coalesce((select pg_has_role(n.nspowner, 'usage') from pg_namespace n where n.nspname = $1), false),
       pg_database_size(current_database()),
       current_user::text"""


@dataclass(frozen=True, slots=True)
class Facts:
    """A row of `_FACTS`."""

    version: int
    synchronous_commit: str
    standby_names: str
    standby_count: int
    sees_standbys: bool
    has_fsync: bool
    has_full_page_writes: bool
    has_autovacuum: bool
    connection_count_max: int
    connection_count: int
    is_standby: bool
    may_create: bool
    owns_schema: bool
    size_bytes: int
    user: str


async def inspect_postgresql(url: str, settings: PostgresqlSettings) -> Inspection:
    """Return the findings about the database. Raises `Unavailable`, `Denied`, `NotFound`, `Invalid` if it cannot be asked."""
    driver_url, schema = split_url(url, settings.schema)
    database = Database(driver_url, replace(settings, schema=schema))
    session = await database.connect(settings.statement_timeout_ms)
    try:
        trips_ms = await _round_trips(session)
        facts = Facts(*await session.first(_FACTS, schema))
        present = await _layout(session, schema)
    finally:
        await session.close()
    findings = [
        *_of_round_trips(trips_ms),
        *rated(facts, schema, present),
        _of_connections(facts, settings),
        layout_finding(present, VERSION, OLDEST),
        ok("size", f"{facts.size_bytes:,} bytes", database_bytes=facts.size_bytes),
    ]
    can_open = present == VERSION and not facts.is_standby and facts.synchronous_commit in DURABLE
    return Inspection(findings=findings, can_open=can_open)


def rated(facts: Facts, schema: str, present: int) -> list[Finding]:
    """Return the findings about version, durability and rights. `present`: the layout, 0 for none."""
    return [*_of_version(facts), *_of_durability(facts), *_of_rights(facts, schema, present)]


async def _round_trips(session: Session) -> list[float]:
    """Return the times (ms) of statements that do nothing."""
    found = []
    for _ in range(ROUND_TRIP_COUNT):
        start = time.perf_counter()
        await session.value("select 1")
        found.append((time.perf_counter() - start) * 1000)
    return found


async def _layout(session: Session, schema: str) -> int:
    """Return the layout; 0: none."""
    if not await session.value(HAS_TABLE, schema):
        return 0
    present: int = await session.value("select coalesce(max(version), 0) from bearlake.migration")
    return present


def _of_round_trips(trips_ms: list[float]) -> Iterator[Finding]:
    median = statistics.median(trips_ms)
    detail = f"{median:.2f} ms (median of {len(trips_ms)})"
    if median <= ROUND_TRIP_MS_MAX:
        yield ok("round trip", detail, median_ms=median)
    else:
        yield warning("round trip", detail, "run servers in the database's region, near its primary", median_ms=median)


def _of_version(facts: Facts) -> Iterator[Finding]:
    if facts.version >= VERSION_MIN:
        yield ok("version", f"PostgreSQL {facts.version}")
    else:
        yield failure("version", f"PostgreSQL {facts.version}", f"use PostgreSQL {VERSION_MIN} or later")
    if facts.is_standby:
        yield failure("primary", "this database is a standby and takes no writes", "name the primary in metadata.url")


def _of_durability(facts: Facts) -> Iterator[Finding]:
    level = facts.synchronous_commit
    if level in DURABLE:
        yield ok("synchronous_commit", level)
    else:
        yield failure(
            "synchronous_commit",
            f"{level}: acknowledged records would be lost in a crash or at a fail-over; servers do not start",
            "alter role … set synchronous_commit = on, or add ?synchronous_commit=on to metadata.url",
        )
    if facts.has_fsync:
        yield ok("fsync", "on")
    else:
        yield failure("fsync", "off: a crash of the machine loses or damages the database", "set fsync = on")
    if not facts.has_full_page_writes:
        yield warning(
            "full_page_writes",
            "off: a crash may damage pages, unless the file system writes pages whole",
            "set full_page_writes = on",
        )
    if not facts.has_autovacuum:
        yield warning("autovacuum", "off: tables grow and statements become slow", "set autovacuum = on")
    yield _of_standbys(facts)


def _of_standbys(facts: Facts) -> Finding:
    if not facts.standby_names:
        return warning(
            "synchronous standby",
            "none: the loss of this database loses the log, and a fail-over to an asynchronous standby loses acknowledged records",
            "set synchronous_standby_names, unless the database's storage is replicated: docs/correctness.md, Assumptions",
        )
    if not facts.sees_standbys:
        return skipped(
            "synchronous standby",
            f"synchronous_standby_names is {facts.standby_names!r}; {facts.user} may not see whether they are connected"
            " (grant pg_monitor)",
        )
    if facts.standby_count:
        return ok("synchronous standby", f"{facts.standby_count} connected, of {facts.standby_names!r}")
    return failure(
        "synchronous standby",
        f"none of {facts.standby_names!r} is connected, so commits wait",
        "bring the standby back; do not empty synchronous_standby_names if you may still fail over to it",
    )


def _of_rights(facts: Facts, schema: str, present: int) -> Iterator[Finding]:
    if facts.owns_schema or (not present and facts.may_create):
        yield ok("rights", f"{facts.user} may use and upgrade the schema {schema}")
    elif present:
        yield failure(
            "rights",
            f"{facts.user} does not own the schema {schema}",
            f"connect as its owner, or: alter schema {schema} owner to …, and its tables and functions",
        )
    else:
        yield failure(
            "rights",
            f"{facts.user} may not create the schema {schema}",
            f"create schema {schema} authorization …, or grant create on database … to …",
        )


def _of_connections(facts: Facts, settings: PostgresqlSettings) -> Finding:
    per_process = settings.connections_max + settings.read_connections_max + MORE_CONNECTIONS
    free = facts.connection_count_max - facts.connection_count
    detail = (
        f"{facts.connection_count} of {facts.connection_count_max} are open; each process opens up to {per_process}"
    )
    figures = {"open_count": facts.connection_count, "limit_count": facts.connection_count_max}
    if free >= per_process:
        return ok("connections", detail, **figures)
    return warning(
        "connections",
        detail,
        "raise max_connections, or lower metadata.postgresql.connections_max and read_connections_max",
        **figures,
    )
