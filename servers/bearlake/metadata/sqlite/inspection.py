"""Inspects a SQLite store without changing it: its file, its layout, and the settings on which its promises depend."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from bearlake.metadata.inspection import Finding, Inspection, failure, layout_finding, ok, warning
from bearlake.metadata.sqlite.migrate import OLDEST, VERSION
from bearlake.metadata.sqlite.settings import SqliteSettings

CHECKED_BYTES_MAX = 256 * 1024 * 1024
"""Largest file whose structure is checked; a check reads the whole file."""


def inspect_sqlite(path: Path, settings: SqliteSettings) -> Inspection:
    """Return the findings about the file. Blocks for as long as it takes to read the file, if that is small."""
    if not path.is_file():
        absent = failure(
            "file", f"{path} does not exist", "pass the --data-dir of a `bearlake up`, or the URL of the store"
        )
        return Inspection(findings=[absent], can_open=False)
    findings = list(_of_file(path, settings))
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, timeout=5)) as connection:
            present = _layout(connection)
            findings += [layout_finding(present, VERSION, OLDEST), *_of_content(connection, path)]
    except sqlite3.Error as error:
        findings.append(failure("content", f"cannot be read: {error}", "restore the file from a backup"))
        return Inspection(findings=findings, can_open=False)
    can_write = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return Inspection(findings=findings, can_open=present == VERSION and can_write)


def _layout(connection: sqlite3.Connection) -> int:
    """Return the layout; 0: none."""
    has_table = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchone()
    if has_table is None:
        return 0
    present: int = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()[0]
    return present


def _of_file(path: Path, settings: SqliteSettings) -> Iterator[Finding]:
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            yield failure(
                "permissions", f"this user cannot write {place}", f"run as the owner, or: chown $USER {place}"
            )
    if settings.synchronous == "FULL":
        yield ok("synchronous", "FULL: a commit survives a power loss")
    else:
        yield warning(
            "synchronous",
            f"{settings.synchronous}: a power loss loses acknowledged records",
            "set metadata.sqlite.synchronous to FULL",
        )
    wal = path.with_name(path.name + "-wal")
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    size = path.stat().st_size
    yield ok("file", f"{size:,} bytes, and {wal_bytes:,} in its journal", file_bytes=size, journal_bytes=wal_bytes)


def _of_content(connection: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    if path.stat().st_size > CHECKED_BYTES_MAX:
        return
    found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    if found == ["ok"]:
        yield ok("content", "no damage found")
    else:
        yield failure("content", f"the file is damaged: {'; '.join(found)}", "restore the file from a backup")
