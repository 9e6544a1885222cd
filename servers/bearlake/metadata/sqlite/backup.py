"""Copies a SQLite store while other processes use it, and puts a copy in the place of a store.

`copy_store` reads one snapshot with SQLite's online backup, so that commits go on. `placed` prepares a restored store beside its place, and
writes it there in one transaction at the end. It holds the lock of the place from the beginning, so no other process uses the store or
restores into it. Until the end the store at the place has the layout `RESTORING`, which no program opens (decision 333).

All functions block. Source: SQLite, "Online Backup API", "PRAGMA locking_mode".
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from bearlake.errors import AlreadyExists, Corrupt, Denied, OutOfRoom, Unavailable
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.packing import RANGE_WIDTH, unpack_rows
from bearlake.metadata.schemas import DEFAULT_CONTEXT, NEW_CONTEXTS, NUMBER_MAX
from bearlake.metadata.sqlite.database import NO_ROOM, translated
from bearlake.metadata.sqlite.migrate import MIGRATIONS, migrate
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.upgrade import layout
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

FILE = "metadata.db"
PAGES_PER_STEP = 1_000
"""Pages (4 KiB) that are copied between two reports of progress."""
PREPARED_SUFFIX = ".restoring"
FILE_MODE = 0o600
POLL_S = 0.02
"""Pause between two attempts to get the lock of the place."""

OBJECT_ROWS = f"""
SELECT key, size FROM (
    SELECT key, size FROM objects WHERE unused_ms IS NULL AND deleted_ms IS NULL
    UNION SELECT token, object_size FROM log
     WHERE token IS NOT NULL AND position > (SELECT rolled_position FROM store) AND kind = 1
) WHERE key NOT LIKE '{MARKERS}%' ORDER BY key"""


def copy_store(path: Path, folder: Path, progress: Progress) -> StoreCopy:
    """Copy the store at `path` into `folder`, as of one moment after the call.

    Raises:
        Denied, Unavailable: the file cannot be read or the copy cannot be written; `OutOfRoom`: the copy's disk is full.
        Corrupt: the file is damaged.
    """
    target = folder / FILE
    with _file_errors(folder):
        return _copied(path, target, progress)


def _copied(path: Path, target: Path, progress: Progress) -> StoreCopy:
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
    try:
        with closing(_connect(path)) as source, closing(_connect(target)) as copy:
            source.execute("PRAGMA query_only = ON")
            source.execute("BEGIN")  # the snapshot lasts for the whole copy, so that commits do not start it again
            source.execute("SELECT 1 FROM store").fetchone()
            page_bytes = int(source.execute("PRAGMA page_size").fetchone()[0])

            def report(_status: int, remaining: int, total: int) -> None:
                progress((total - remaining) * page_bytes)

            source.backup(copy, pages=PAGES_PER_STEP, progress=report)
            source.execute("ROLLBACK")
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a journal beside it
            _check(copy, target)
            found = _described(copy, target.parent)
    except sqlite3.Error as error:
        raise translated(error, str(path)) from error
    _sync(target)
    return found


def _described(connection: sqlite3.Connection, folder: Path) -> StoreCopy:
    count = 0
    with (folder / OBJECTS).open("x", encoding="ascii") as out:
        os.fchmod(out.fileno(), FILE_MODE)
        for key, size in connection.execute(OBJECT_ROWS):
            out.write(f"{key}\t{size}\n")
            count += 1
        out.flush()
        os.fsync(out.fileno())
    cluster_id, position = connection.execute(
        "SELECT cluster_id, coalesce((SELECT max(position) FROM log), rolled_position) FROM store"
    ).fetchone()
    return StoreCopy(
        kind="sqlite",
        layout=layout(connection),
        cluster_id=cluster_id,
        position=position,
        files=[FILE, OBJECTS],
        object_count=count,
        stream_number=_last(connection, "streams"),
        task_id=_last(connection, "tasks"),
        compacted={
            PartitionKey(partition): offset
            for partition, offset in connection.execute(
                "SELECT partition, compacted FROM partitions WHERE compacted > 0"
            )
        },
        open_tasks=_open_tasks(connection),
    )


def _last(connection: sqlite3.Connection, table: str) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 0 if row is None else int(row[0])


def _open_tasks(connection: sqlite3.Connection) -> Mapping[int, OpenTask]:
    epochs: dict[int, set[int]] = {}
    for task_id, epoch in connection.execute("SELECT task_id, epoch FROM task_results"):
        epochs.setdefault(task_id, set()).add(epoch)
    return {
        task_id: OpenTask(
            ranges=[OffsetRange(PartitionKey(row[0]), row[1], row[2]) for row in unpack_rows(ranges, RANGE_WIDTH)],
            epochs=frozenset(epochs.get(task_id, ())),
        )
        for task_id, ranges in connection.execute("SELECT id, ranges FROM tasks")
    }


def check_place(path: Path, *, may_replace: bool) -> None:
    """Raise `AlreadyExists` if there is a store at `path` and it may not be replaced; one that a restore has begun to make may be."""
    with _file_errors(path):
        if may_replace or not path.exists():
            return
    try:
        with closing(_connect(path)) as connection:
            _refuse_content(connection, path, may_replace=may_replace)
    except sqlite3.OperationalError as error:
        raise translated(error, str(path)) from error
    except sqlite3.DatabaseError as error:
        raise AlreadyExists(_present(path)) from error


@contextmanager
def placed(
    path: Path, folder: Path, restore: str, now_ms: int, settings: SqliteSettings, *, ordinal: int, may_replace: bool
) -> Iterator[Path]:
    """Yield a store made from the copy in `folder`, in a file beside `path`; at the end of the block, write it to `path`.

    The block opens the store and closes it. `restore`: the name under which the restore is registered in it. `ordinal`: as of
    `metadata.backup.restored`. If the block fails, no program opens the store at `path` until a restore succeeds.

    Raises:
        AlreadyExists: there is a store at `path`, and it may not be replaced.
        Unavailable: another process has the store at `path` open. Nothing was changed.
        Denied, OutOfRoom, Unavailable: the store cannot be written here.
        Unsupported: a newer program made the copy.
        Corrupt: the copy is damaged.
    """
    prepared = path.with_name(path.name + PREPARED_SUFFIX)
    try:
        with _held(path, settings.busy_timeout_ms) as place:
            _refuse_content(place, path, may_replace=may_replace)
            try:
                with _file_errors(prepared):
                    _prepare(prepared, folder, restore, now_ms, ordinal)
                _mark(place, now_ms)
                yield prepared
                with closing(_connect(prepared)) as connection:
                    connection.execute("PRAGMA journal_mode = DELETE")
                    connection.backup(place)
            finally:
                with _file_errors(prepared):
                    _remove(prepared)
    except sqlite3.Error as error:
        raise translated(error, str(path)) from error


def _prepare(prepared: Path, folder: Path, restore: str, now_ms: int, ordinal: int) -> None:
    _remove(prepared)
    shutil.copyfile(folder / FILE, prepared)
    prepared.chmod(FILE_MODE)
    with closing(_connect(prepared)) as connection:
        _check(connection, prepared)
        migrate(connection, now_ms)
        _jump(connection, restore, ordinal)


def _jump(connection: sqlite3.Connection, restore: str, ordinal: int) -> None:
    """Let the restored store count on above everything that lost stores may have given out."""
    epoch_jump = EPOCH_JUMP * ordinal
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "UPDATE store SET last_epoch = last_epoch + ?, next_producer_id = next_producer_id + ?",
        (epoch_jump, PRODUCER_JUMP * ordinal),
    )
    connection.execute("UPDATE servers SET has_left = 1")
    connection.execute(
        "INSERT INTO servers (node_id, name, epoch, zone, endpoints, version, timeout_ms, is_draining, has_left)"
        " SELECT coalesce(max(node_id) + 1, 0), ?, (SELECT last_epoch FROM store), NULL, '{}', '', 60000, 0, 1 FROM servers",
        (restore,),
    )
    connection.execute("UPDATE leases SET node_id = NULL, server_epoch = NULL, epoch = epoch + ?", (epoch_jump,))
    for context in (DEFAULT_CONTEXT, NEW_CONTEXTS):
        connection.execute("INSERT OR IGNORE INTO schema_contexts (context, last_id) VALUES (?, 0)", (context,))
    connection.execute("UPDATE schema_contexts SET last_id = min(last_id + ?, ?)", (SCHEMA_JUMP * ordinal, NUMBER_MAX))
    for table, jump in (("streams", STREAM_JUMP), ("tasks", TASK_JUMP)):
        last = _last(connection, table)
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last + jump * ordinal))
    connection.execute("COMMIT")


@contextmanager
def _held(path: Path, wait_ms: int) -> Iterator[sqlite3.Connection]:
    """Yield a connection that keeps all other processes out of the file at `path` (decision 112); make an empty file if there is none."""
    with _file_errors(path):
        if not path.exists():
            _make(path)
    deadline_s = time.monotonic() + wait_ms / 1000
    while True:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            if _has_locked(connection):
                yield connection
                return
        if time.monotonic() >= deadline_s:
            raise Unavailable(f"another process has the metadata store {path} open: stop all processes that use it")
        time.sleep(POLL_S)


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Translate errors of the file system: `Denied`, `OutOfRoom`, else `Unavailable`. `path` is what could not be written."""
    try:
        yield
    except PermissionError as error:
        raise Denied(f"{path}: {error}") from error
    except OSError as error:
        kind = OutOfRoom if error.errno in NO_ROOM else Unavailable
        raise kind(f"{path}: {error}") from error


def _make(path: Path) -> None:
    """Make an empty file. A journal that a lost store left behind must not be taken for its own."""
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, FILE_MODE))


def _has_locked(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        if mode != "delete":
            return False
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN EXCLUSIVE")  # in this mode the lock outlives the transaction
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return False
        raise
    return True


def _refuse_content(connection: sqlite3.Connection, path: Path, *, may_replace: bool) -> None:
    if not may_replace and layout(connection) not in (0, RESTORING):
        raise AlreadyExists(_present(path))


def _present(path: Path) -> str:
    return f"{path} exists: pass --replace to put the backup in its place"


def _mark(connection: sqlite3.Connection, now_ms: int) -> None:
    """Let no program open the store."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(MIGRATIONS)
    connection.execute("INSERT OR IGNORE INTO migrations VALUES (?, 'restore', ?)", (RESTORING, now_ms))
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise Corrupt(f"the copy {path} is damaged: {answer}")


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=10, isolation_level=None)


def _remove(prepared: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        prepared.with_name(prepared.name + suffix).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
