"""Versioned layout: `migrations/NNNN_name.sql`, applied in order, each once, under a lock, when the store is opened.

Many servers may start at once: the first makes the changes in one transaction, and the others wait and find the changes made. The lock is
an advisory lock of the database, numbered by the schema's name. It ends with the transaction.

Table changes take locks that block readers until the commit has ended, and the commit waits for the synchronous standby. So the migrating
process first commits a row that no other process waits for. While the standby is away, it waits there with only the advisory lock, and
servers go on reading. (A standby that goes away between the two commits still blocks readers until it is back.)

Commits of running servers touch `partition_group` first. So the migrating process locks this table before all others: running commits
end, and new ones wait without a lock that a migration needs. A deadlock with another function is still possible, and is retried.
"""

import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from typing import NamedTuple

from bearlake.errors import Unavailable, Unsupported
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.database import Database, Session
from bearlake.metadata.postgresql.waiting import HOLDERS, Waiting

LOCK_CLASS = 0x4265_6172
"""First half of the advisory lock's number: "Bear"."""

GATE_VERSION = 1
"""The migration that makes `partition_group`."""

ATTEMPTS_MAX = 10
"""Attempts of a migration that loses a deadlock with running servers."""

HAS_TABLE = """
select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'migration')"""
"""Whether schema $1 has a layout. `to_regclass` is unsuitable: its cached answer may be as old as the transaction."""


class Migration(NamedTuple):
    """One migration of the layout."""

    version: int
    name: str
    script: str


def available() -> list[Migration]:
    """Return the migrations that this program knows, oldest first."""
    folder = resources.files("bearlake.metadata.postgresql").joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name[:4]), file.name[:-4], file.read_text("utf-8")) for file in files]


async def migrate(database: Database, known: Sequence[Migration]) -> None:
    """Bring the layout up to date: all missing migrations in one transaction. Takes no lock if none is missing.

    Waits at most `migrate_timeout_ms` for another process that migrates, and at most `migrate_lock_timeout_ms` for a table's lock.

    Raises:
        Unsupported: a newer program has used this store; nothing was changed.
        Unavailable: the store does not answer, or another transaction holds a lock too long; the message names it. Try again.
    """
    session = await database.connect(database.settings.migrate_timeout_ms)
    try:
        if not await _missing(session, database.settings.schema, known):
            return
        pid = await session.value("select pg_backend_pid()")
        async with Waiting(partial(_locks_awaited, database, pid)):
            async with _turn(database, session):
                if await _missing(session, database.settings.schema, known):
                    await _write_one_row(session, database.settings.schema)
            for attempt in range(ATTEMPTS_MAX):
                try:
                    async with _turn(database, session):
                        await _make_changes(session, await _missing(session, database.settings.schema, known))
                    return
                except Unavailable as error:
                    if not failures.is_rolled_back(error.__cause__ or error) or attempt + 1 == ATTEMPTS_MAX:
                        raise
                    await session.execute("rollback")  # a deadlock: nothing was changed
    finally:
        await session.close()


@asynccontextmanager
async def _turn(database: Database, session: Session) -> AsyncIterator[None]:
    """Run the block as a transaction of the only process that may migrate now; it sees the migrations of earlier processes."""
    settings = database.settings
    number = zlib.crc32(settings.schema.encode()) - 0x8000_0000
    await session.execute(f"begin; set local lock_timeout = {settings.migrate_timeout_ms}")
    await session.value("select pg_advisory_xact_lock($1, $2)", LOCK_CLASS, number)
    await session.execute(f"set local lock_timeout = {settings.migrate_lock_timeout_ms}")
    yield
    # COMMIT is in a script, so the limits would apply while it waits for a standby, and make it visible too early (`connection.py`).
    await session.execute("set local statement_timeout = 0; set local lock_timeout = 0")
    await session.execute("commit")


async def _missing(session: Session, schema: str, known: Sequence[Migration]) -> list[Migration]:
    """Return the migrations to run. Raises `Unsupported` if the store has migrations that this program does not know."""
    present = 0
    if await session.value(HAS_TABLE, schema):
        present = await session.value("select coalesce(max(version), 0) from bearlake.migration")
    if present > known[-1].version:
        raise Unsupported(
            f"the metadata store has layout {present}, this program knows layouts up to {known[-1].version}:"
            " use a newer version of Bearlake"
        )
    return [migration for migration in known if migration.version > present]


async def _write_one_row(session: Session, schema: str) -> None:
    """Change a row that no other process waits for, so that the wait for a missing standby comes before the first strong lock."""
    if not await session.value(HAS_TABLE, schema):
        # An administrator can create the schema for a user who may not create schemas.
        if not await session.value("select exists (select from pg_namespace where nspname = $1)", schema):
            await session.execute(f'create schema "{schema}"')
        await session.execute(
            "create table bearlake.migration (version integer primary key, name text not null, applied_at timestamptz not null)"
        )
    await session.execute(
        "update bearlake.migration set name = name where version = (select max(version) from bearlake.migration)"
    )


async def _make_changes(session: Session, missing: Sequence[Migration]) -> None:
    for migration in missing:
        if migration.version > GATE_VERSION:
            await session.execute("lock table bearlake.partition_group in access exclusive mode")
        await session.execute(migration.script)
        await session.value("insert into bearlake.migration values ($1, $2, now())", migration.version, migration.name)


async def _locks_awaited(database: Database, pid: int) -> list[str]:
    session = await database.connect(database.settings.statement_timeout_ms)
    try:
        return [str(row) for row in await session.column(HOLDERS, pid)]
    finally:
        await session.close()
