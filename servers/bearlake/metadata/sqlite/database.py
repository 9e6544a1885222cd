"""Connections, threads and transactions of one SQLite file; sqlite3's errors are translated here.

A file has two connections. One has its own thread, for writes and for reads that need the ledger. The other has another thread, for
plain reads, which do not wait for a commit's fsync. In memory there is one connection, and steps run at once in the caller's
thread: no threads, no waits, deterministic.

A step is a function. Once it has begun, it runs to its end on its thread, even if its caller is cancelled; a step of a cancelled caller
that has not begun never runs. Write steps run one at a time, in the order in which they began to wait, so no step that was given up
happens later (I12). A write step begins when it has the write lock. If its caller has gone by then, it never runs (decision 316).
"""

import asyncio
import errno
import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from bearlake.errors import BearlakeError, Corrupt, OutOfRoom, Overloaded, Unavailable
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.telemetry.containment import noticed
from bearlake.threads import Threads

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BUSY_POLL_MS = 1
"""How often a transaction tries again to get a lock that another process holds."""

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
"""What the operating system says of a disk without room, for all or for this user."""
PROBE_BYTES = 64 * 1024


def translated(error: sqlite3.Error, path: str) -> BearlakeError:
    """Return the error kind that the caller can act on: `Corrupt` for a damaged file, `OutOfRoom` on a full disk, else `Unavailable`."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in DAMAGED:
        return Corrupt(f"the metadata store {path} is damaged or not a SQLite file: {error}")
    if code is not None and _lacks_room(code, path):
        return OutOfRoom(f"the disk of the metadata store {path} is full: {error}")
    return Unavailable(f"the metadata store {path} failed: {error}")


def _lacks_room(code: int, path: str) -> bool:
    # Without room for its index of the WAL (-shm), SQLite cannot even open a file: "disk I/O error".
    # A write that exceeds a quota (EDQUOT) is no FULL for SQLite, and Python's driver does not tell the system's error.
    return (
        code & 0xFF == sqlite3.SQLITE_FULL
        or code == sqlite3.SQLITE_IOERR_SHMSIZE
        or (code == sqlite3.SQLITE_IOERR_WRITE and not has_room(Path(path).parent))
    )


def has_room(folder: Path) -> bool:
    """Return whether this process can write `PROBE_BYTES` into a new file of the folder, as far as room is concerned; blocks."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.errno not in NO_ROOM
    return True


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


class _Caller:
    """Who waits for a step."""

    __slots__ = ("has_gone",)

    def __init__(self) -> None:
        self.has_gone = False


class Database:
    """One file (or memory, `path=None`) with its threads. `open` comes first, `close` last."""

    def __init__(self, path: Path | None, settings: SqliteSettings) -> None:
        self.path = ":memory:" if path is None else str(path)
        self._settings = settings
        self._is_inline = path is None
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        self.is_shared = path is not None
        self._write_lock = threading.Lock()
        """Held by the user of the writing connection."""
        self._queue_lock = threading.Lock()
        """Held by the first step that waits for the write lock: later steps queue behind it."""
        self._threads: list[Threads] = []
        """The writer's and the reader's."""
        self.writer: sqlite3.Connection
        self.reader: sqlite3.Connection

    async def open(
        self, prepare: Callable[[sqlite3.Connection], None], before: Callable[[str], None] = lambda path: None
    ) -> None:
        """Run `before` on the file (not in memory), connect, and run `prepare` on the writing connection; both block."""
        if not self._is_inline:
            self._threads = [Threads(name, 1) for name in ("metadata-write", "metadata-read")]
        try:
            await self.run(self._connect, prepare, before)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish the steps that wait or run, then close connections and threads. It goes on if its caller is cancelled. Safe to repeat."""
        if self._is_inline:
            if not self._is_closed:
                self._is_closed = True
                self._disconnect()
            return
        if self._closing is None:
            self._is_closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
            self._closing.add_done_callback(noticed(log, "close the metadata store"))
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        writer, reader = self._threads
        await reader.run(lambda: None)
        await writer.run(self._disconnect)
        for threads in self._threads:
            threads.close()
            threads.join()  # both are idle, so this only waits for two threads to end

    async def run(self, step: Callable[..., Result], *arguments: object) -> Result:
        """Run a step on the writer's thread.

        Raises:
            Overloaded: too many steps are waiting.
            Unavailable: the store is closed or failed.
        """
        return await self._run(0, step, *arguments)

    async def run_read(self, step: Callable[..., Result], *arguments: object) -> Result:
        """Run a step on the reader's thread; raises like `run`."""
        return await self._run(-1, step, *arguments)

    async def _run(self, thread: int, step: Callable[..., Result], *arguments: object) -> Result:
        if self._is_closed:
            raise Unavailable(f"the metadata store {self.path} is closed")
        if self._is_inline:
            return self._guarded(step, *arguments)
        # Steps whose callers have gone count: the queues keep them.
        count = sum(threads.pending_count for threads in self._threads)
        if count >= self._settings.queue_length_max:
            raise Overloaded(f"too many operations ({count}) wait for the metadata store {self.path}")
        caller = _Caller()
        run = self._guarded if thread else partial(self._guarded_write, caller)
        try:
            return await self._threads[thread].run(partial(run, step, *arguments))
        except BaseException:
            caller.has_gone = True
            raise

    def run_here(self, step: Callable[..., Result], *arguments: object) -> Result:
        """Run a step in the calling thread, which is not the event loop's; blocks while another step runs. Raises like `run`."""
        with self._queue_lock:  # as `_writing`, whose generator would cost a tenth of a small commit
            self._write_lock.acquire()
        try:
            if self._is_closed:
                raise Unavailable(f"the metadata store {self.path} is closed")
            return step(*arguments)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        finally:
            self._write_lock.release()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._queue_lock:
            self._write_lock.acquire()
        try:
            yield
        finally:
            self._write_lock.release()

    def _guarded_write(self, caller: _Caller, step: Callable[..., Result], *arguments: object) -> Result:
        with self._writing():
            if caller.has_gone:
                raise Unavailable("the caller has gone")  # nobody hears it
            return self._guarded(step, *arguments)

    def _guarded(self, step: Callable[..., Result], *arguments: object) -> Result:
        try:
            return step(*arguments)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction that has the write lock from the start; rolled back if the block or the commit fails."""
        connection = self.writer
        self._patiently(connection, "BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise

    def looking(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run the block in one snapshot on the writing connection, for reads that use the ledger."""
        return self._snapshot(self.writer)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run the block in one snapshot on the reading connection."""
        return self._snapshot(self.reader)

    @contextmanager
    def _snapshot(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        connection.execute("BEGIN")
        try:
            self._patiently(connection, "SELECT 1 FROM store")  # fixes the snapshot: no later read waits
            yield connection
        finally:
            self._roll_back(connection)

    def write_at_once(self, statement: str, parameters: Sequence[object]) -> bool:
        """Run one statement as its own transaction on the writing connection; returns whether it changed a row."""
        return self._patiently(self.writer, statement, parameters).rowcount > 0

    def at_once(self, step: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run a step of one statement as its own transaction; the step runs again until the lock is free."""
        return self._retried(partial(step, self.writer))

    def read_at_once(self, statement: str, parameters: Sequence[object]) -> sqlite3.Cursor:
        """Run one statement as its own snapshot on the writing connection."""
        return self._patiently(self.writer, statement, parameters)

    def _patiently(
        self, connection: sqlite3.Connection, statement: str, parameters: Sequence[object] = ()
    ) -> sqlite3.Cursor:
        """Execute a statement that takes the lock; try again until the lock is free."""
        return self._retried(partial(connection.execute, statement, parameters))

    def _retried(self, attempt: Callable[[], Result]) -> Result:
        """Attempt what takes the lock until the lock is free.

        SQLite's own retry sleeps longer each time (up to 100 ms), so one of several busy processes would starve.
        """
        deadline = time.monotonic() + self._settings.busy_timeout_ms / 1000
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() >= deadline:
                    raise

    @staticmethod
    def _roll_back(connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _connect(self, prepare: Callable[[sqlite3.Connection], None], before: Callable[[str], None]) -> None:
        if not self._is_inline:
            before(self.path)
        self.writer = self._connection()
        self._switch_to_wal()
        self.writer.execute(f"PRAGMA synchronous = {self._settings.synchronous}")
        self.writer.execute(f"PRAGMA wal_autocheckpoint = {self._settings.wal_checkpoint_pages}")
        prepare(self.writer)
        if self._is_inline:
            self.reader = self.writer
        else:
            self.reader = self._connection()
            self.reader.execute("PRAGMA query_only = ON")
            self.reader.execute(f"PRAGMA busy_timeout = {BUSY_POLL_MS}")
        self.writer.execute(f"PRAGMA busy_timeout = {BUSY_POLL_MS}")

    def _switch_to_wal(self) -> None:
        """Switch to write-ahead logging. SQLite refuses this at once, without waiting, while another process does the same."""
        deadline = time.monotonic() + self._settings.busy_timeout_ms / 1000
        while True:
            try:
                self.writer.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(BUSY_POLL_MS / 1000)
            else:
                return

    def _connection(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path,
            timeout=self._settings.busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    def _disconnect(self) -> None:
        with self._writing():
            self._close_connections()

    def _close_connections(self) -> None:
        for connection in {
            id(c): c for c in (getattr(self, "reader", None), getattr(self, "writer", None)) if c
        }.values():
            connection.close()
