"""Backups of a metadata store: a consistent copy of all its rows, and what a restore changes in them.

A copy is a set of files in a folder, in a form of the backend's own: SQLite copies the file, PostgreSQL the rows of each table. A copy is
restored into the same kind of store. `objects.tsv` beside it lists the objects that the copy's index names.

What a restore changes (`store_copy.py`): everything that the lost store may have given out after the copy was made must not be given out
again. So numbers of streams and tasks, producer ids, epochs of servers and leases, and ids of schemas go on far above those of the copy.
All registrations have ended, so a process of the lost store is fenced in the restored one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

from bearlake.clock import SystemClock
from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.open import POSTGRESQL, sqlite_path
from bearlake.metadata.sqlite import backup as sqlite_backup
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite
from bearlake.metadata.store_copy import Progress, StoreCopy
from bearlake.urls import split_store_url


def kind_of(url: str) -> str:
    """Return the kind of the store that the URL names: `sqlite` or `postgresql`. Raises `Invalid` for all others."""
    scheme = split_store_url(url).scheme
    if scheme in POSTGRESQL:
        return "postgresql"
    if scheme == "sqlite":
        return "sqlite"
    raise Invalid(f"metadata store URL {scheme}:…: only sqlite:///path and postgresql://… have backups")


async def copy_store(url: str, settings: object, folder: Path, progress: Progress) -> StoreCopy:
    """Copy the store at `url` into the empty `folder`, as of one moment after the call, while servers use the store.

    `settings` as of `open_metadata`.

    Raises:
        Invalid: the URL names no store that has backups.
        Unsupported: the store has a layout that this program cannot copy.
        Unavailable: the store does not answer.
        Corrupt: the store is damaged.
    """
    if kind_of(url) == "postgresql":
        module, chosen = _postgresql(settings)
        copied: StoreCopy = await module.copy_store(url, chosen, folder, progress)
        return copied
    return await asyncio.to_thread(sqlite_backup.copy_store, sqlite_path(url), folder, progress)


async def check_place(url: str, settings: object, copy: StoreCopy, *, may_replace: bool) -> None:
    """Check that `copy` may be restored to `url`. Raises as `restored`; changes nothing."""
    if kind_of(url) != copy.kind:
        raise Invalid(f"a backup of a {copy.kind} store can only be restored into one, not into {kind_of(url)}")
    if copy.kind == "postgresql":
        module, chosen = _postgresql(settings)
        await module.check_place(url, chosen, may_replace=may_replace)
    else:
        sqlite_backup.check_place(sqlite_path(url), may_replace=may_replace)


@asynccontextmanager
async def restored(
    url: str,
    settings: object,
    folder: Path,
    copy: StoreCopy,
    restore: str,
    progress: Progress,
    *,
    ordinal: int,
    may_replace: bool,
) -> AsyncIterator[Metadata]:
    """Yield the store that `copy` in `folder` makes at `url`. No other process can use it before the end of the block.

    `restore`: the name under which the restore is registered in the store. `ordinal`: how many restores there were, with this one: the
    store counts on so many jumps above the copy, because the others may have been of the same copy. If the block or the process fails, no
    process can open the store at `url` until a restore succeeds.

    Raises:
        AlreadyExists: there is a store with content, and it may not be replaced.
        Invalid: the copy is of another kind of store.
        Unsupported: the copy or the store has a layout that this program cannot restore.
        Unavailable: the store does not answer, another process uses it, or another restore fills it.
        Corrupt: the copy is damaged.
    """
    await check_place(url, settings, copy, may_replace=may_replace)
    if copy.kind == "postgresql":
        module, chosen = _postgresql(settings)
        async with module.placed(
            url, chosen, folder, restore, progress, ordinal=ordinal, layout=copy.layout, may_replace=may_replace
        ) as metadata:
            yield metadata
        return
    sqlite = settings if isinstance(settings, SqliteSettings) else SqliteSettings()
    clock = SystemClock()
    with sqlite_backup.placed(
        sqlite_path(url), folder, restore, clock.now_ms(), sqlite, ordinal=ordinal, may_replace=may_replace
    ) as prepared:
        store = await open_sqlite(prepared, sqlite, clock=clock)
        try:
            yield store
        finally:
            await store.close()


def _postgresql(settings: object) -> tuple[ModuleType, object]:
    try:
        from bearlake.metadata.postgresql import backup
        from bearlake.metadata.postgresql.settings import PostgresqlSettings
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise Invalid("PostgreSQL needs the driver asyncpg: install bearlake[postgresql]") from error
    return backup, settings if isinstance(settings, PostgresqlSettings) else PostgresqlSettings()
