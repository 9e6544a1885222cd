"""The layout: `schema/*.sql` makes the tables of an empty store, by noun; `migrations/NNNN_name.sql` changes the tables of older stores.

All changes are made in one transaction, under the write lock, when the store is opened. Each change of `schema/` gives the layout the next
number (`VERSION`) and comes with a migration of that number.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bearlake.errors import Unavailable, Unsupported
from bearlake.metadata.store_copy import RESTORING

VERSION = 23
"""The layout that `schema/` makes."""

OLDEST = 16
"""The oldest layout that a store may have to be upgraded."""

MIGRATIONS = "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_ms INTEGER NOT NULL) STRICT"
"""The table of the layouts that the store came to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a program knows of the layout."""

    version: int
    oldest: int
    tables: Sequence[str]
    """Scripts that make the tables of an empty store."""
    migrations: Sequence[tuple[int, str]] = ()
    """Version and script of each change of an older store's tables, oldest first."""


def available() -> Layout:
    """Return the layout of this program."""
    folder = Path(__file__).parent
    tables = [script for _, script in _scripts(folder.joinpath("schema"))]
    migrations = [(int(name[:4]), script) for name, script in _scripts(folder.joinpath("migrations"))]
    return Layout(version=VERSION, oldest=OLDEST, tables=tables, migrations=migrations)


def _scripts(folder: Path) -> list[tuple[str, str]]:
    """Return name and text of the files of a folder that may be absent, by name."""
    if not folder.is_dir():
        return []
    return [(file.name, file.read_text("utf-8")) for file in sorted(folder.glob("*.sql"))]


def migrate(
    connection: sqlite3.Connection, now_ms: int, layout: Layout | None = None, *, is_alone: bool = True
) -> None:
    """Bring the store to `layout` (that of this program), in one transaction.

    `is_alone`: no other process has the file open. If False, only an empty store is changed.

    Raises:
        Unsupported: a newer program has used this store, or it is too old to be upgraded; nothing was changed.
        Unavailable: the store has an older layout, and this process is not alone (`upgrade.py` upgrades it), or a restore of the store
            has not ended; nothing was changed.
    """
    layout = layout or available()
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(MIGRATIONS)
        (present,) = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()
        _check(present, layout)
        if 0 < present < layout.version and not is_alone:
            raise Unavailable(f"an older program made the metadata store meanwhile, with the older layout {present}")
        if present != layout.version:
            scripts = [script for version, script in layout.migrations if version > present]
            for script in scripts if present else layout.tables:
                for statement in statements(script):
                    connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, 'layout', ?)", (layout.version, now_ms))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check(present: int, layout: Layout) -> None:
    """Raises `Unsupported` if this program cannot use a store of layout `present`; 0: it is empty. `Unavailable` during a restore."""
    if present == RESTORING:
        raise Unavailable("a restore into this metadata store has not ended: wait for it, or run it again")
    if present > layout.version:
        raise Unsupported(
            f"the metadata store has layout {present}, this program knows layouts up to {layout.version}: use a newer version of Bearlake"
        )
    if 0 < present < layout.oldest:
        raise Unsupported(
            f"the metadata store has layout {present}, this program upgrades layouts from {layout.oldest} on:"
            f" open the store once with the version of Bearlake that has layout {layout.oldest}, then with this one"
        )


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. (`executescript` would commit the surrounding transaction.)"""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement.strip(), "a migration ends with a semicolon"
