"""The engine of one statement: one connection, opened and closed in the threads that use it.

DuckDB's calls block, so they run in threads, and their caller may give up at any time: while a call waits for its thread, while it runs,
and between two calls. The connection and its memory are freed at once in each case; nothing waits for the garbage collector.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

import duckdb

from bearlake.errors import Unavailable
from bearlake.table.settings import TableSettings

T = TypeVar("T")


class QuerySession:
    """A connection that is opened by the first call. Calls run one after the other; `end` is safe in any thread."""

    def __init__(self, settings: TableSettings) -> None:
        """`settings`: limits of the engine."""
        self._settings = settings
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._is_running = False
        self._has_ended = False

    def run(self, call: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Return what the call returns. Blocks.

        Raises:
            Unavailable: the session has ended.
            Any exception of the call, and of the engine when it opens.
        """
        with self._lock:
            self._check()
            self._is_running = True
        try:
            if self._connection is None:
                self._connection = duckdb.connect(":memory:")
                _configure(self._connection, self._settings)
            self._check()  # from here on, `end` interrupts the call
            return call(self._connection)
        finally:
            with self._lock:
                self._is_running = False
                if self._has_ended:
                    self._close()

    def end(self) -> None:
        """Close the connection. A call that runs is interrupted, and closes the connection when it returns. Safe to repeat."""
        with self._lock:
            self._has_ended = True
            if not self._is_running:
                self._close()
            elif self._connection is not None:
                self._connection.interrupt()

    def _check(self) -> None:
        if self._has_ended:
            raise Unavailable("the query was stopped: its caller has given up")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _configure(connection: duckdb.DuckDBPyConnection, settings: TableSettings) -> None:
    connection.execute(f"set memory_limit = '{settings.query_memory_bytes_max} B'")
    connection.execute(f"set threads = {settings.query_thread_count}")
    connection.execute("set TimeZone = 'UTC'")
    connection.execute("set autoinstall_known_extensions = false")
    if not settings.query_temporary_files:
        connection.execute("set temp_directory = ''")
