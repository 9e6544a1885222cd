"""One connection to a PostgreSQL primary, which never asks the database to cancel or end anything.

A backend whose commit waits for a synchronous standby has already committed; only the wait hides the commit. `pg_cancel_backend`,
`pg_terminate_backend` and the protocol's CancelRequest end this wait, and the commit becomes visible, but on the primary alone: a
fail-over then loses data that clients have read. A client cannot tell whether a backend is about to enter the wait, so this package
sends none of them. The driver sends a CancelRequest if a statement times out or its task is cancelled; this class closes the
connection instead.

These settings end a backend that its client gave up: `statement_timeout`, `lock_timeout`, and `client_connection_check_interval`.

- PostgreSQL raises `client_connection_check_interval`, `idle_in_transaction_session_timeout` and `transaction_timeout` where it checks for
  interrupts. It does not check during a commit.
- `statement_timeout` and `lock_timeout` cancel as a CancelRequest does. In the extended protocol PostgreSQL stops the statement's timer
  and drops a pending cancellation before it reads the Sync message, which commits. So a lock that the commit itself takes (NOTIFY) needs
  a wait without `lock_timeout`: `functions/commit.sql`. A script with COMMIT (simple protocol) must first switch both off:
  `migrate.py`.

Source: PostgreSQL, `SyncRepWaitForLSN` (syncrep.c), `ProcessInterrupts`, `PostgresMain` and `exec_execute_message` (postgres.c),
`PreCommit_Notify` (async.c).
"""

import asyncio
import logging
import os
import weakref
from typing import Any

import asyncpg

from bearlake.urls import one_host_each, split_store_url

log = logging.getLogger(__name__)

LOOK = "select pg_is_in_recovery(), a.pid, a.backend_start from pg_stat_get_activity(pg_backend_pid()) a"
"""Identifies the server and the backend of a new connection; the last two columns name the backend."""

HISTORY = """
select c.system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint from pg_control_system() c"""
"""The system identifier of a primary, and its timeline, which grows with each promotion of a standby."""

_HAS_NO_HISTORY = ("0A000", "42501", "42883")
"""Feature not supported, no privilege, no such function: the errors of a database that does not report its history."""

_NEXT_HOST = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.PostgresConnectionError,
)
"""Errors of a host after which another host may be the primary."""


def hosts_of(url: str) -> list[str]:
    """Return a URL for each host of a URL. A list in a parameter or a variable stays as it is: the driver knows what belongs together."""
    query = split_store_url(url).query
    if "host=" in query or "port=" in query or "," in os.environ.get("PGPORT", ""):
        return [url]
    return one_host_each(url)


class Connection(asyncpg.Connection):  # type: ignore[misc] # the driver has no types
    """A connection of the driver that closes instead of cancelling."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # Any: the driver's own
        super().__init__(*arguments, **options)
        self.session = 0
        """The id of the connection's session (`sessions.py`); 0 before its first write."""

        self.system, self.timeline = 0, 0
        """System identifier and timeline of the connection's server."""

        self.backend: tuple[object, ...] = ()
        """Process id and start time of the connection's backend."""

    @property
    def statement_count(self) -> int:
        """Statements that this connection, which must be open, has run."""
        count: int = self._protocol.queries_count
        return count

    def _cancel_current_command(self, *_: Any) -> None:  # Any: the driver's futures, which closing completes
        """Close instead of sending a CancelRequest; soon, but not inside the protocol's own step."""
        self._loop.call_soon(self.terminate)


class Connections:
    """Makes all connections of one process to its database.

    A fail-over may leave the former primary running, and connections to it open. It can commit nothing that counts, because its
    standby has left it, but it still answers reads, from before the fail-over. So the first connection to a later timeline closes all
    connections to earlier ones, before a statement runs on it: no connection reads what is older than a write of this process.
    """

    def __init__(self) -> None:
        self._made: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._system, self._timeline = 0, 0  # of the newest primary that this process has seen
        self._tells_history = True
        self._host = 0
        """Place of the host to try first, in the URL: the last one that was reached, or the one after a host that let a caller wait."""

    async def connect(self, url: str, *, timeout: float = 60, **options: Any) -> Connection:  # Any: the driver's own
        """Return a connection to a primary, with a backend of its own. The caller closes it. `options`: those of `asyncpg.connect`.

        If the URL names several hosts, they are tried one by one, the last one that was reached first. Each has an equal part of the time
        that is left: a host that does not answer must not use up that of the others. If the caller gives up before, the next call begins
        with the next host.

        Raises what the driver raises; `asyncpg.InterfaceError` if the address leads to a standby, to a former primary, or to a pooler
        that gives one backend to several connections: sessions belong to backends.
        """
        hosts, first = hosts_of(url), self._host
        time = asyncio.get_running_loop().time
        deadline = time() + timeout
        for step in range(len(hosts)):
            place = (first + step) % len(hosts)
            part = max((deadline - time()) / (len(hosts) - step), 0)
            try:
                async with asyncio.timeout(part):
                    connection = await self._connect_to(hosts[place], timeout=part, **options)
            except asyncio.CancelledError:
                if self._host == first:  # nobody else has reached a host meanwhile
                    self._host = (place + 1) % len(hosts)
                raise
            except _NEXT_HOST as error:
                fields = {"host": split_store_url(hosts[place]).netloc.rpartition("@")[2], "error": repr(error)}
                log.debug("a host of the database leads to no primary", extra=fields)
                if step == len(hosts) - 1:
                    raise
            else:
                self._host = place
                return connection
        raise AssertionError("a URL has a host")

    async def _connect_to(self, url: str, **options: Any) -> Connection:
        connection: Connection = await asyncpg.connect(url, **{"connection_class": Connection, **options})
        try:
            is_standby, *backend = await connection.fetchrow(LOOK)
            _refuse_standby(is_standby)
            connection.backend = tuple(backend)
            connection.system, connection.timeline = await self._history(connection)
            self._refuse_former(connection)
            self._refuse_shared(connection)
        except BaseException:
            connection.terminate()
            raise
        self._made.add(connection)
        return connection

    async def _history(self, connection: Connection) -> tuple[int, int]:
        """Return the server's system identifier and timeline; zeros if the database does not report them."""
        try:
            system, timeline = await connection.fetchrow(HISTORY)
        except asyncpg.PostgresError as error:
            if error.sqlstate not in _HAS_NO_HISTORY:
                raise
            if self._tells_history:
                self._tells_history = False
                log.warning(
                    "the database does not report its timeline: fence former primaries", extra={"error": repr(error)}
                )
            return 0, 0
        return system, timeline

    def _refuse_former(self, connection: Connection) -> None:
        """Refuse a former primary, and close all connections to it when its successor is seen first.

        Timelines of one system only grow. Another system (the database was moved or upgraded) begins anew.
        """
        if not connection.system:
            return
        if connection.system == self._system and connection.timeline < self._timeline:
            raise asyncpg.InterfaceError(
                f"the address leads to a former primary, of timeline {connection.timeline} instead of {self._timeline}"
            )
        self._system, self._timeline = connection.system, connection.timeline
        for other in list(self._made):
            is_current = (other.system, other.timeline) == (self._system, self._timeline)
            if other.system and not is_current and not other.is_closed():
                other.terminate()

    def _refuse_shared(self, connection: Connection) -> None:
        """Refuse a connection whose backend another open connection has, and close the other one too.

        Either a pooler shares backends, and neither connection owns its session; or the other end has forgotten the earlier connection
        and given its backend away. Nothing is ever sent on an idle connection, so this process might never notice that. The next
        connection to this backend then has it alone.
        """
        others = [other for other in self._made if other.backend == connection.backend and not other.is_closed()]
        for other in others:
            other.terminate()
        if others:
            raise asyncpg.InterfaceError("two connections have one backend: a pooler between must be in session mode")


def _refuse_standby(is_standby: bool) -> None:
    """Refuse a hot standby: it takes no writes, and its reads may be stale.

    An address may lead to a standby for a moment during a switch-over. A primary becomes a standby only by a restart, which ends its
    connections, so one look per connection is enough.
    """
    if is_standby:
        raise asyncpg.InterfaceError("the address leads to a standby, not to the primary")
