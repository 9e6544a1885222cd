"""Versioned layout: `migrations/NNNN_name.sql`, applied in order, each once, all under the write lock when the store is opened."""

import sqlite3
from collections.abc import Iterator
from importlib import resources

from bearlake.errors import Unsupported


def available() -> list[tuple[int, str, str]]:
    """Return version, name and statements of every migration that this program knows, oldest first."""
    files = sorted(
        (
            file
            for file in resources.files("bearlake.metadata.sqlite").joinpath("migrations").iterdir()
            if file.name.endswith(".sql")
        ),
        key=lambda file: file.name,
    )
    return [(int(file.name[:4]), file.name[:-4], file.read_text("utf-8")) for file in files]


def migrate(connection: sqlite3.Connection, now_ms: int) -> None:
    """Bring the layout up to date: all missing migrations in one transaction.

    Raises:
        Unsupported: a newer program has used this store; nothing was changed.
    """
    known = available()
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_ms INTEGER NOT NULL) STRICT"
        )
        (present,) = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()
        if present > known[-1][0]:
            raise Unsupported(
                f"the metadata store has layout {present}, this program knows layouts up to {known[-1][0]}: use a newer version of Bearlake"
            )
        for version, name, script in known:
            if version > present:
                for statement in statements(script):
                    connection.execute(statement)
                connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (version, name, now_ms))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. (`executescript` would commit the surrounding transaction.)"""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement.strip(), "a migration ends with a semicolon"
