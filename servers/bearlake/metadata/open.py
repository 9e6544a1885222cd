"""Open the metadata store that a URL names.

sqlite:///path/to/file.db     one file, shared by the processes of one host
memory:///                    in this process only, discarded at its end; steps run at once in the caller's thread
postgresql://user@host/name   a cluster; needs the extra `bearlake[postgresql]`
"""

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from bearlake.clock import Clock, SystemClock
from bearlake.errors import Invalid, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite
from bearlake.urls import split_store_url

if TYPE_CHECKING:
    from bearlake.metadata.inspection import Inspection

POSTGRESQL = ("postgresql", "postgres")


async def open_metadata(
    url: str,
    settings: object | None = None,
    *,
    clock: Clock | None = None,
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
) -> Metadata:
    """Open the store, bring its layout up to date, and return it; the caller closes it.

    `settings` are the backend's own (`SqliteSettings`, `PostgresqlSettings`), None for the defaults. `clock` is the store's time for
    SQLite and memory; PostgreSQL uses its own clock.

    Raises:
        Invalid: the URL names no store, or the driver is not installed. Passwords are never shown.
        Unsupported: a newer program has used this store.
        Unavailable: the store cannot be reached or opened.
    """
    parts = split_store_url(url)
    if parts.scheme in POSTGRESQL:
        return await _open_postgresql(url, settings)
    if settings is not None and not isinstance(settings, SqliteSettings):
        raise Invalid(f"the metadata store {parts.scheme}: expected SqliteSettings, not {type(settings).__name__}")
    chosen = settings or SqliteSettings()
    if parts.scheme == "memory":
        return await open_sqlite(None, chosen, clock=clock or SystemClock(), new_uuid=new_uuid)
    if parts.scheme == "sqlite":
        return await open_sqlite(sqlite_path(url), chosen, clock=clock or SystemClock(), new_uuid=new_uuid)
    raise Invalid(f"metadata store URL {parts.scheme}:…: expected sqlite:///path, memory:///, postgresql://…")


async def inspect_metadata(url: str, settings: object | None = None) -> "Inspection":
    """Inspect the store without changing it or its layout. `settings` as of `open_metadata`; raises as that."""
    scheme = split_store_url(url).scheme
    if scheme in POSTGRESQL:
        return await _inspect_postgresql(url, settings)
    if scheme != "sqlite":
        raise Invalid(f"metadata store URL {scheme}:…: only sqlite:///path and postgresql://… can be inspected")
    from bearlake.metadata.sqlite.inspection import inspect_sqlite  # late: for `bearlake doctor`

    chosen = settings if isinstance(settings, SqliteSettings) else SqliteSettings()
    return await asyncio.to_thread(inspect_sqlite, sqlite_path(url), chosen)


def sqlite_path(url: str) -> Path:
    """Return the file of a `sqlite:///path` URL. Its folder must exist.

    Raises:
        Invalid: the URL has no absolute path.
        Unavailable: the folder does not exist.
    """
    parts = split_store_url(url)
    path = Path(unquote(parts.path))
    if parts.netloc or not path.is_absolute() or path == Path("/"):
        raise Invalid("a SQLite store is named by an absolute path: sqlite:///path/to/file.db")
    if not path.parent.is_dir():
        raise Unavailable(f"the folder of the metadata store {path} does not exist")
    return path


async def _inspect_postgresql(url: str, settings: object | None) -> "Inspection":
    try:
        from bearlake.metadata.postgresql.inspection import inspect_postgresql
        from bearlake.metadata.postgresql.settings import PostgresqlSettings
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise Invalid("PostgreSQL needs the driver asyncpg: install bearlake[postgresql]") from error
    return await inspect_postgresql(url, settings if isinstance(settings, PostgresqlSettings) else PostgresqlSettings())


async def _open_postgresql(url: str, settings: object | None) -> Metadata:
    try:
        from bearlake.metadata.postgresql.settings import PostgresqlSettings
        from bearlake.metadata.postgresql.store import open_postgresql
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise Invalid("PostgreSQL needs the driver asyncpg: install bearlake[postgresql]") from error
    if settings is not None and not isinstance(settings, PostgresqlSettings):
        raise Invalid(f"the metadata store postgresql: expected PostgresqlSettings, not {type(settings).__name__}")
    return await open_postgresql(url, settings)
