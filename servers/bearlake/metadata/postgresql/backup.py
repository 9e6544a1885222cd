"""Copies a PostgreSQL store while servers use it, and loads a copy into an empty schema, or in the place of a store.

A copy has a file for each table, in PostgreSQL's text format of COPY, read in one repeatable-read transaction: commits go on. Any version
of PostgreSQL reads the format. Sessions and migrations are left out, and so are tables in the schema that are not the store's: PostgreSQL
makes the catalog's tables there if the role has the schema's name.

A load is one transaction. Until the restore ends, the layout is `RESTORING`, which no program opens: so a process that is killed leaves a
store that nobody uses, and the restore may begin anew. `session` is emptied, so that connections of the lost store's processes end.

Source: PostgreSQL documentation, "COPY", "Sequence Manipulation Functions".
"""

import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg

from bearlake.errors import AlreadyExists, Unavailable, Unsupported
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.database import Database, Session, split_url
from bearlake.metadata.postgresql.layout import VERSION, available
from bearlake.metadata.postgresql.migrate import HAS_TABLE, migrate
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import PostgresqlMetadata, open_postgresql
from bearlake.metadata.schemas import DEFAULT_CONTEXT, NEW_CONTEXTS, NUMBER_MAX
from bearlake.metadata.store_copy import (
    EPOCH_JUMP,
    OBJECTS,
    PRODUCER_JUMP,
    RESTORING,
    SCHEMA_JUMP,
    STREAM_JUMP,
    TASK_JUMP,
    OpenTask,
    Progress,
    StoreCopy,
)
from bearlake.records.markers import PREFIX as MARKERS

TABLES_FILE = "tables.json"
"""Columns of each table, and the last values of sequences."""
STATEMENT_MS = 24 * 3_600_000
"""Longest copy or load of one table."""
FILE_MODE = 0o600
NOT_COPIED = ("migration", "session")
LOCK_CLASS = 0x5265_7374
"""First half of the number of the advisory lock of restores: "Rest"."""

TABLES = """
select c.relname, array_agg(a.attname::text order by a.attnum)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where n.nspname = $1 and c.relkind = 'r' group by c.relname order by c.relname"""
SEQUENCES = """
select s.sequencename, coalesce(s.last_value, 0), t.relname
  from pg_sequences s
  join pg_class c on c.relname = s.sequencename and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = $1)
  left join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.refobjsubid > 0
  left join pg_class t on t.oid = d.refobjid
 where s.schemaname = $1"""
"""Name, last value, and the table whose column owns the sequence."""
OBJECT_ROWS = f"""
select o.key, o.size from bearlake.object o
 where o.number <> -1 and o.unused_ms is null and o.deleted_ms is null and o.key not like '{MARKERS}%' order by o.key"""
COMPACTED = """
select (c.group_key << 5) + i - 1, c.offsets[i] from bearlake.compaction_group c, generate_subscripts(c.offsets, 1) i
 where c.offsets[i] > 0"""
OPEN_TASKS = """
select t.id, t.partitions, t.starts, t.ends,
       array(select r.epoch from bearlake.task_result r where r.task_id = t.id) from bearlake.task t"""
LAYOUT_BELOW = "select coalesce(max(version), 0) from bearlake.migration where version < $1"
"""The layout of the tables that a restore fills."""
JUMPS = """
update bearlake.cluster set producer_id_next = producer_id_next + {producer};
update bearlake.server set has_left = true;
insert into bearlake.server (node_id, name, epoch, endpoints, version, timeout_ms, has_left)
select coalesce(max(s.node_id) + 1, 0), '{restore}', coalesce(max(s.epoch), 0) + {epoch}, '{{}}', '', 60000, true from bearlake.server s;
update bearlake.lease set node_id = null, server_epoch = null, epoch = epoch + {epoch};
insert into bearlake.schema_context (context, last_id) values ('{context}', 0), ('{new_contexts}', 0) on conflict do nothing;
update bearlake.schema_context set last_id = least(last_id::bigint + {schema}, {number_max});
delete from bearlake.session;
"""


async def copy_store(url: str, settings: PostgresqlSettings, folder: Path, progress: Progress) -> StoreCopy:
    """Copy the store at `url` into `folder`, as of one moment after the call.

    Raises:
        Unsupported: the store has not this program's layout.
        Unavailable: the database does not answer, or the copy cannot be written.
    """
    database, schema = _database(url, settings)
    session = await database.connect(STATEMENT_MS)
    try:
        await session.execute("begin isolation level repeatable read read only")
        layout = await _layout(session, schema)
        if layout != VERSION:
            raise Unsupported(f"the metadata store has layout {layout}, this program copies layout {VERSION}")
        return await _copied(session, schema, folder, progress)
    finally:
        await session.close()


async def _copied(session: Session, schema: str, folder: Path, progress: Progress) -> StoreCopy:
    tables = await _tables(session, schema)
    written = 0
    for name, columns in tables.items():
        path = folder / f"{name}.copy"
        with path.open("xb") as out:
            os.fchmod(out.fileno(), FILE_MODE)

            async def write(chunk: bytes, out: Any = out) -> None:
                nonlocal written
                out.write(chunk)
                written += len(chunk)
                progress(written)

            await _translated(
                session.connection.copy_from_table(
                    name, output=write, columns=columns, schema_name=schema, format="text"
                )
            )
            out.flush()
            os.fsync(out.fileno())
    sequences = await _sequences(session, schema)
    _write(folder / TABLES_FILE, [json.dumps({"tables": tables, "sequences": sequences}, indent=1)])
    objects = await session.rows(OBJECT_ROWS)
    _write(folder / OBJECTS, (f"{key}\t{size}\n" for key, size in objects))
    return StoreCopy(
        kind="postgresql",
        layout=VERSION,
        cluster_id=await session.value("select id from bearlake.cluster"),
        position=await session.value("select position from bearlake.log_head"),
        files=[*(f"{name}.copy" for name in tables), TABLES_FILE, OBJECTS],
        object_count=len(objects),
        stream_number=await session.value("select coalesce(max(number), 0) from bearlake.stream"),
        task_id=sequences["task_id_seq"],
        compacted={PartitionKey(key): offset for key, offset in await session.rows(COMPACTED)},
        open_tasks={
            row[0]: OpenTask(
                ranges=[OffsetRange(PartitionKey(p), s, e) for p, s, e in zip(*row[1:4], strict=True)],
                epochs=frozenset(row[4]),
            )
            for row in await session.rows(OPEN_TASKS)
        },
    )


async def _tables(session: Session, schema: str) -> dict[str, list[str]]:
    """Return the columns of each of the store's tables that a copy has."""
    copied = _copied_names()
    return {name: columns for name, columns in await session.rows(TABLES, schema) if name in copied}


def _copied_names() -> frozenset[str]:
    return available().table_names.difference(NOT_COPIED)


@asynccontextmanager
async def placed(
    url: str,
    settings: PostgresqlSettings,
    folder: Path,
    restore: str,
    progress: Progress,
    *,
    ordinal: int,
    layout: int,
    may_replace: bool,
) -> AsyncIterator[PostgresqlMetadata]:
    """Yield a store made from the copy in `folder`; no other program opens it before the end of the block, which makes it usable.

    If the block fails, the store stays unusable until a restore succeeds. `restore`: the name under which the restore is registered in it.
    `ordinal`: as of `metadata.backup.restored`.

    Raises:
        AlreadyExists: the schema has a store with content, and it may not be replaced.
        Unsupported: the copy, or the store in the schema, has not this program's layout.
        Unavailable: the database does not answer, servers hold locks for too long, or another restore fills the schema.
    """
    if layout != VERSION:
        raise Unsupported(
            f"the backup has layout {layout}, this program restores layout {VERSION}: restore with the version of Bearlake that made it,"
            " then upgrade"
        )
    database, schema = _database(url, settings)
    await check_place(url, settings, may_replace=may_replace)
    session = await database.connect(STATEMENT_MS)
    try:
        await _exclude_others(session, settings, schema)
        if await _layout(session, schema) == 0:
            await migrate(database, available())
        await _load(session, settings, schema, folder, restore, progress, ordinal=ordinal, may_replace=may_replace)
        unopened = replace(available(), version=RESTORING)
        metadata = await open_postgresql(url, settings, layout=unopened)
        try:
            yield metadata
        finally:
            await metadata.close()
        await session.execute(f"delete from bearlake.migration where version = {RESTORING}")
    finally:
        await session.close()


async def _exclude_others(session: Session, settings: PostgresqlSettings, schema: str) -> None:
    """Wait until no other restore fills the schema, and keep others out for as long as the session lives."""
    await session.execute(f"set lock_timeout = {settings.migrate_lock_timeout_ms}")
    try:
        await session.value("select pg_advisory_lock($1, hashtext($2))", LOCK_CLASS, schema)
    except Unavailable as error:
        if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
            raise
        raise Unavailable(f"another restore fills the schema {schema}: wait for it") from error


async def check_place(url: str, settings: PostgresqlSettings, *, may_replace: bool) -> None:
    """Raise `AlreadyExists` if the schema has a store with content and it may not be replaced, `Unsupported` if its layout is another."""
    database, schema = _database(url, settings)
    session = await database.connect(settings.statement_timeout_ms)
    try:
        present = await _layout(session, schema)
        if present == RESTORING:
            present = await session.value(LAYOUT_BELOW, RESTORING)
            may_replace = True
        if present not in (0, VERSION):
            raise Unsupported(
                f"the schema {schema} has a store of layout {present}, this program knows {VERSION}: upgrade the store or drop the schema"
            )
        if present == VERSION and not may_replace:
            await _refuse_content(session, schema)
    finally:
        await session.close()


async def _refuse_content(session: Session, schema: str) -> None:
    if await session.value("select exists (select from bearlake.stream) or exists (select from bearlake.server)"):
        raise AlreadyExists(f"the schema {schema} has a metadata store: pass --replace to put the backup in its place")


async def _load(
    session: Session,
    settings: PostgresqlSettings,
    schema: str,
    folder: Path,
    restore: str,
    progress: Progress,
    *,
    ordinal: int,
    may_replace: bool,
) -> None:
    described = json.loads((folder / TABLES_FILE).read_text("utf-8"))
    copied = _copied_names()
    # Copies of earlier programs also have the other tables and sequences of the schema.
    tables = {name: columns for name, columns in described["tables"].items() if name in copied}
    await session.execute(f"begin; set local lock_timeout = {settings.migrate_lock_timeout_ms}")
    # As a migration: commits touch this table first, so running commits end, and new ones wait without another lock.
    await session.execute("lock table bearlake.partition_group in access exclusive mode")
    present = await _layout(session, schema)
    if present == VERSION and not may_replace:
        await _refuse_content(session, schema)
    here = await _tables(session, schema)
    if missing := tables.keys() - here:
        raise Unsupported(f"the backup has tables that the schema {schema} does not have: {', '.join(sorted(missing))}")
    if missing := here.keys() - tables:
        raise Unsupported(f"the backup lacks tables of its layout: {', '.join(sorted(missing))}")
    names = ", ".join(f"bearlake.{name}" for name in sorted(tables))
    await session.execute(f"truncate {names}")
    await session.execute(
        f"insert into bearlake.migration values ({RESTORING}, 'restore', now()) on conflict do nothing"
    )
    loaded = 0
    for name, columns in tables.items():
        await session.execute(f"alter table bearlake.{name} disable trigger user")
        path = folder / f"{name}.copy"
        await _translated(
            session.connection.copy_to_table(name, source=path, columns=columns, schema_name=schema, format="text")
        )
        await session.execute(f"alter table bearlake.{name} enable trigger user")
        loaded += path.stat().st_size
        progress(loaded)
    own = await _sequences(session, schema)
    sequences = {name: last for name, last in described["sequences"].items() if name in own}
    await _set_sequences(session, schema, sequences, ordinal)
    jumps = {"producer": PRODUCER_JUMP, "epoch": EPOCH_JUMP, "schema": SCHEMA_JUMP}
    values = {name: jump * ordinal for name, jump in jumps.items()}
    contexts = {"context": DEFAULT_CONTEXT, "new_contexts": NEW_CONTEXTS, "number_max": NUMBER_MAX}
    await session.execute(JUMPS.format(**values, **contexts, restore=restore))
    # COMMIT is in a script, so the limits would apply while it waits for a standby, and make it visible too early (`connection.py`).
    await session.execute("set local statement_timeout = 0; set local lock_timeout = 0")
    await session.execute("commit")


async def _sequences(session: Session, schema: str) -> dict[str, int]:
    """Return the last value of each of the store's sequences that a copy has."""
    tables, unowned = _copied_names(), available().sequence_names
    return {
        name: last
        for name, last, table in await session.rows(SEQUENCES, schema)
        if table in tables or (table is None and name in unowned)
    }


async def _set_sequences(session: Session, schema: str, sequences: Mapping[str, int], ordinal: int) -> None:
    jumps = {"stream_number_seq": STREAM_JUMP, "task_id_seq": TASK_JUMP}
    for name, last in sequences.items():
        value = last + jumps.get(name, 0) * ordinal
        if value:
            await session.value("select setval(format('%I.%I', $1::text, $2::text)::regclass, $3)", schema, name, value)


def _database(url: str, settings: PostgresqlSettings) -> tuple[Database, str]:
    driver_url, schema = split_url(url, settings.schema)
    return Database(driver_url, replace(settings, schema=schema)), schema


async def _layout(session: Session, schema: str) -> int:
    if not await session.value(HAS_TABLE, schema):
        return 0
    present: int = await session.value("select coalesce(max(version), 0) from bearlake.migration")
    return present


async def _translated(call: Any) -> None:  # an awaitable of the driver, which has no types
    try:
        await call
    except failures.FOREIGN as error:
        raise failures.translated(error) from error


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("x", encoding="utf-8") as out:
        os.fchmod(out.fileno(), FILE_MODE)
        out.writelines(lines)
        out.flush()
        os.fsync(out.fileno())
