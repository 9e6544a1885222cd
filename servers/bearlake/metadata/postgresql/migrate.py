"""Versioned layout: `migrations/NNNN_name.sql`, applied in order, each once, under a lock, when the store is opened.

Many servers may start at once: the first makes the changes in one transaction, the others wait for it and find them made. The lock is an
advisory one of the database, numbered by the schema's name; it ends with the transaction.
"""

import zlib
from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from bearlake.errors import Unsupported
from bearlake.metadata.postgresql.database import Database

LOCK_CLASS = 0x4265_6172
"""First half of the advisory lock's number: "Bear"."""


class Migration(NamedTuple):
    """One step of the layout."""

    version: int
    name: str
    script: str


def available() -> list[Migration]:
    """The migrations that this program knows, oldest first."""
    folder = resources.files("bearlake.metadata.postgresql").joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name[:4]), file.name[:-4], file.read_text("utf-8")) for file in files]


async def migrate(database: Database, known: Sequence[Migration]) -> None:
    """Bring the layout up to date: all missing migrations in one transaction.

    Raises:
        Unsupported: a newer program has used this store; nothing was changed.
        Unavailable: the store does not answer, or another process holds the lock for too long.
    """
    session = await database.connect(database.settings.migrate_timeout_ms)
    lock = zlib.crc32(database.settings.schema.encode()) - 0x8000_0000
    try:
        await session.execute("begin; set local lock_timeout = 0")
        await session.value("select pg_advisory_xact_lock($1, $2)", LOCK_CLASS, lock)
        if await session.value("select to_regclass('bearlake.migration') is null"):
            # A user who may not create schemas can be given one.
            if await session.value("select to_regnamespace($1) is null", database.settings.schema):
                await session.execute(f'create schema "{database.settings.schema}"')
            await session.execute(
                "create table bearlake.migration (version integer primary key, name text not null, applied_at timestamptz not null)"
            )
        present = await session.value("select coalesce(max(version), 0) from bearlake.migration")
        if present > known[-1].version:
            raise Unsupported(
                f"the metadata store has layout {present}, this program knows layouts up to {known[-1].version}:"
                " use a newer version of Bearlake"
            )
        for migration in known:
            if migration.version > present:
                await session.execute(migration.script)
                await session.value(
                    "insert into bearlake.migration values ($1, $2, now())", migration.version, migration.name
                )
        await session.execute("commit")
    finally:
        await session.close()
