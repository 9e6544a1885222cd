"""Upgrades the layout of an existing file while no other process has the file open.

An older program reads and writes a newer layout wrongly: it omits columns whose defaults then decide, and nothing in the file can stop
it. SQLite can: the change from write-ahead logging to a rollback journal needs the file's exclusive lock, which no process gets while
another one has the file open. In exclusive locking mode the lock is then held until the new layout is committed. An older program that
opens the file afterwards reads the layout first, and ends with `Unsupported`.

Waiting processes do not keep the file open, so several new processes that start together do not block each other.
Source: SQLite, "PRAGMA locking_mode" and "PRAGMA journal_mode"; decision 112.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

from bearlake.errors import Unavailable
from bearlake.metadata.sqlite.migrate import available, migrate

POLL_MS = 20
"""Longest pause between two attempts; drawn at random, so that processes that start together do not collide repeatedly."""


def upgrade(
    path: str, now_ms: int, *, wait_ms: int, randomness: random.Random, pause: Callable[[float], None] = time.sleep
) -> None:
    """Bring an older layout up to date; no-op for a new file and for any other layout. Blocks for up to `wait_ms`.

    Raises:
        Unavailable: another process has the file open. Nothing was changed.
        sqlite3.Error: the file cannot be opened or is damaged.
    """
    deadline_s = time.monotonic() + wait_ms / 1000
    while not _is_done(path, now_ms):
        if time.monotonic() >= deadline_s:
            raise Unavailable(
                f"the metadata store {path} has an older layout, and another process has it open:"
                " stop all processes of the older version first"
            )
        pause(randomness.uniform(0, POLL_MS) / 1000)


def _is_done(path: str, now_ms: int) -> bool:
    """Upgrade if needed; return False if another process has the file open. Leaves no connection open."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            known = available()
            if not known.oldest <= layout(connection) < known.version:
                return True  # a new file, this program's layout, or one that `migrate` refuses
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            if mode != "delete":
                return False
            migrate(connection, now_ms)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return False
            raise
    return True


def layout(connection: sqlite3.Connection) -> int:
    """Return the number of the file's newest migration; 0 for a new file."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone() is None:
        return 0
    (present,) = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()
    return int(present)
