"""Bring a store to this program's layout when it is opened: make it, or upgrade it under a lock (`layout.py` says what the files are).

An empty store gets the tables and the functions. An older store gets the missing migrations, and all functions anew. The table `migration`
records each layout that the store came to.

Many servers may start at once: the first makes the changes in one transaction, and the others wait and find the changes made. The lock is
an advisory lock of the database, numbered by the schema's name. It ends with the transaction.

Table changes take locks that block readers until the commit has ended, and the commit waits for the synchronous standby. So the migrating
process first commits a row that no other process waits for. While the standby is away, it waits there with only the advisory lock, and
servers go on reading. (A standby that goes away between the two commits still blocks readers until it is back, if tables change.)

Commits of running servers touch `partition_group` first. So the migrating process locks this table before all others: running commits
end, and new ones wait without a lock that a migration needs. A deadlock with another function is still possible, and is retried. If only
functions change, the lock lets readers pass.
"""

import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from bearlake.errors import Unavailable, Unsupported
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.database import Database, Session
from bearlake.metadata.postgresql.layout import Layout
from bearlake.metadata.postgresql.waiting import AWAITED, Waiting
from bearlake.metadata.store_copy import RESTORING

LOCK_CLASS = 0x4265_6172
"""First half of the advisory lock's number: "Bear"."""

ATTEMPTS_MAX = 10
"""Attempts of a migration that loses a deadlock with running servers."""

HAS_TABLE = """
select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'migration')"""
"""Whether schema $1 has a layout. `to_regclass` is unsuitable: its cached answer may be as old as the transaction."""


async def migrate(database: Database, layout: Layout) -> None:
    """Bring the store to `layout`, in one transaction. Takes no lock if the store has it.

    Waits at most `migrate_timeout_ms` for another process that migrates, and at most `migrate_lock_timeout_ms` for a table's lock.

    Raises:
        Unsupported: a newer program has used this store, or it is too old to be upgraded; nothing was changed.
        Unavailable: the store does not answer, another transaction holds a lock too long, or the synchronous standby is away; the
            message names the holder or the standby. Or a restore fills the store. Try again.
    """
    session = await database.connect(database.settings.migrate_timeout_ms)
    schema = database.settings.schema
    try:
        if await _present(session, schema, layout) == layout.version:
            return
        pid = await session.value("select pg_backend_pid()")
        async with Waiting(partial(_awaited, database, pid)):
            async with _exclusive_transaction(database, session):
                if await _present(session, schema, layout) != layout.version:
                    await _write_one_row(session, schema)
            for attempt in range(ATTEMPTS_MAX):
                try:
                    async with _exclusive_transaction(database, session):
                        await _make_changes(session, layout, await _present(session, schema, layout))
                    return
                except Unavailable as error:
                    if not failures.is_rolled_back(error.__cause__ or error) or attempt + 1 == ATTEMPTS_MAX:
                        raise
                    await session.execute("rollback")  # a deadlock: nothing was changed
    finally:
        await session.close()


@asynccontextmanager
async def _exclusive_transaction(database: Database, session: Session) -> AsyncIterator[None]:
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


async def _present(session: Session, schema: str, layout: Layout) -> int:
    """Return the store's layout; 0 if it is empty. Raises `Unsupported` if this program cannot use it, `Unavailable` during a restore."""
    present: int = 0
    if await session.value(HAS_TABLE, schema):
        present = await session.value("select coalesce(max(version), 0) from bearlake.migration")
    if present == RESTORING != layout.version:
        raise Unavailable("a restore into this metadata store has not ended: wait for it, or run it again")
    if present > layout.version:
        raise Unsupported(
            f"the metadata store has layout {present}, this program knows layouts up to {layout.version}:"
            " use a newer version of Bearlake"
        )
    if 0 < present < layout.oldest:
        raise Unsupported(
            f"the metadata store has layout {present}, this program upgrades layouts from {layout.oldest} on:"
            f" open the store once with the version of Bearlake that has layout {layout.oldest}, then with this one"
        )
    return present


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


async def _make_changes(session: Session, layout: Layout, present: int) -> None:
    """Take the store from layout `present` to `layout`, within the caller's transaction."""
    if present == layout.version:
        return
    # Functions name each other in any order. `tests/metadata/postgresql/test_postgresql_layout.py` checks their bodies.
    await session.execute("set local check_function_bodies = off")
    if present == 0:
        await _run(session, layout.tables)
    else:
        missing = layout.missing(present)
        mode = "access exclusive" if missing else "exclusive"
        await session.execute(f"lock table bearlake.partition_group in {mode} mode")
        await _run(session, [migration.script for migration in missing])
    await _run(session, layout.functions)
    await session.value("insert into bearlake.migration values ($1, $2, now())", layout.version, "layout")


async def _run(session: Session, scripts: Sequence[str]) -> None:
    for script in scripts:
        await session.execute(script)


async def _awaited(database: Database, pid: int) -> list[str]:
    session = await database.connect(database.settings.statement_timeout_ms)
    try:
        return [str(row) for query in AWAITED for row in await session.column(query, pid)]
    finally:
        await session.close()
