"""Connections to PostgreSQL: the pool, time limits and repeats; every statement goes through this module.

Statements use the schema name `bearlake.`, which `Database` replaces with the configured name. Each statement runs in its own
transaction (one statement, often one stored function).

I12: a write that was given up cannot happen later. A statement without an answer (timeout, cancellation, broken connection) closes its
connection, and this process begins no write before the connection's session has ended (`sessions.py`). Then the outcome of the write is
final, and a repeat finds its effect. Nothing here cancels a statement or ends a backend (`connection.py`).

Reads have separate connections, on which PostgreSQL refuses writes. They need no session, write nothing, and do not queue behind
writes that hang. So reads continue while the database cannot write (no space, a missing standby, read-only).

A pooler in front of the database must be in session mode: a session belongs to one connection of the database.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from bearlake.errors import BearlakeError, Invalid, Overloaded, Unavailable
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.connection import Connection, Connections
from bearlake.metadata.postgresql.pool import Pool
from bearlake.metadata.postgresql.sessions import Sessions
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.urls import split_store_url

log = logging.getLogger(__name__)

ATTEMPTS_MAX = 3
"""Attempts of a step that had no effect (deadlock) or may be repeated (connection lost); after that the caller must retry."""

GRACE_S = 1.0
"""This process waits this much longer than the database's own limit for an answer."""

IDLE_S = 300.0
"""Time after which a connection that nobody needs is closed."""

MALFORMED = "the metadata URL is malformed; expected postgresql://user:password@host:port/database"


def split_url(url: str, schema: str) -> tuple[str, str]:
    """Return the URL for the driver, and the schema that it names with `?schema=` (default: the given schema).

    Raises:
        Invalid: not a PostgreSQL URL. The message does not include the URL, since it may hold a password.
    """
    try:
        parts = split_store_url(url)
        for host in parts.netloc.rpartition("@")[2].split(","):
            urlsplit(f"//{host}")  # checks the brackets of an IPv6 address
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise Invalid(MALFORMED) from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise Invalid("the metadata URL must start with postgresql://")
    parameters = [(key, value) for key, value in query if key != "schema"]
    named = [value for key, value in query if key == "schema"]
    return urlunsplit(parts._replace(query=urlencode(parameters))), (named or [schema])[-1]


class Database:
    """Two bounded pools of connections to one schema of one database: for writes, and for reads."""

    def __init__(self, url: str, settings: PostgresqlSettings) -> None:
        self.settings = settings
        self._url = url
        self._writers: Pool | None = None
        self._readers: Pool | None = None
        self._connections = Connections()
        self._was_let_in = False
        self._sessions = Sessions(self._end_sessions)

    async def open(self) -> None:
        """Create the pools, with one connection each to show that they work. Raises `Unavailable`, `Denied`, `NotFound`, `Invalid`."""
        settings = self.settings
        try:
            self._readers = await self._pool(self._connect_reader, settings.read_connections_max)
            self._writers = await self._pool(self._connect, settings.connections_max)
            self._was_let_in = True
        except failures.FOREIGN as error:
            raise failures.translated(error) from error
        except ValueError:
            raise Invalid(MALFORMED) from None

    async def _pool(self, connect: Callable[[], Awaitable[Connection]], size_max: int) -> Pool:
        pool = Pool(connect, size_max, wait_s=self.settings.acquire_timeout_ms / 1000, idle_s=IDLE_S)
        await pool.open()
        return pool

    async def _connect(self) -> Connection:
        return await self._connections.connect(**self._arguments(self.settings.statement_timeout_ms))

    async def _connect_reader(self) -> Connection:
        connection = await self._connect()
        try:
            await _refuse_writes(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def connect(self, statement_timeout_ms: int) -> "Session":
        """Open a connection outside the pools, with its own time limit; the caller closes it. Raises as `open`."""
        try:
            return Session(await self._connections.connect(**self._arguments(statement_timeout_ms)), self.sql)
        except failures.FOREIGN as error:
            raise failures.translated(error) from error
        except ValueError:
            raise Invalid(MALFORMED) from None

    def _arguments(self, statement_timeout_ms: int) -> dict[str, Any]:
        settings = self.settings
        parameters = {
            "application_name": "bearlake",
            "statement_timeout": str(statement_timeout_ms),
            "lock_timeout": str(min(settings.lock_timeout_ms, statement_timeout_ms)),
            "idle_in_transaction_session_timeout": str(settings.idle_transaction_timeout_ms),
            "idle_session_timeout": "0",  # overrides the role's; the pools close connections that are idle for long
            "client_connection_check_interval": str(settings.client_check_interval_ms),
            "tcp_keepalives_idle": str(max(1, settings.client_silence_ms // 2000)),
            "tcp_keepalives_interval": str(max(1, settings.client_silence_ms // 6000)),
            "tcp_keepalives_count": "3",
            "default_transaction_isolation": "read committed",
            # Every statement here must use an index, even if the planner's statistics date from when all tables were empty.
            "jit": "off",
            "enable_seqscan": "off",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "plan_cache_mode": "force_generic_plan",
        }
        password = {"password": self._password} if settings.password_file else {}
        return {
            **password,
            "url": self._url,
            "timeout": settings.connect_timeout_ms / 1000,
            "command_timeout": statement_timeout_ms / 1000 + GRACE_S,
            "statement_cache_size": settings.statement_cache_count,
            "server_settings": parameters,
            "connection_class": Connection,
        }

    def _password(self) -> str:
        """Return the password; the driver calls this for every new connection. Raises `Unavailable`: the file may come back."""
        try:
            return Path(self.settings.password_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"metadata.postgresql.password_file cannot be read: {error}") from error

    def _translated(self, error: BaseException) -> BearlakeError:
        """Like `failures.translated`, except that two refusals after a first success are not final.

        A wrong password may be in rotation. A database that is missing may be missing only on this server: the address may lead to a
        standby that lags. Callers would take `NotFound` for the stream that they asked for.
        """
        kind = failures.translated(error)
        if self._was_let_in and (failures.is_unknown_user(error) or failures.is_unknown_database(error)):
            return Unavailable(str(kind))
        return kind

    def sql(self, statement: str) -> str:
        """Return the statement with the configured schema name."""
        return _with_schema(statement, self.settings.schema)

    async def rows(
        self, statement: str, *values: object, is_repeatable: bool = True, is_read: bool = False
    ) -> list[asyncpg.Record]:
        """Run one statement and return its rows. `is_read`: it changes nothing, so it need not wait until sessions have ended.

        A step that certainly had no effect is repeated: deadlock, serialization failure, ended session, or a statement that named what an
        upgrade has just removed. A step whose connection broke is repeated only if `is_repeatable`: it changes nothing, or has the same
        effect however often it runs.

        Raises:
            Unavailable: no connection, no answer in time, or the connection broke. A write may have happened, or may happen until
                the next write of this process begins, but not later. For a read, also: the store lacks what it names.
            Overloaded: the store lacks what a write names, so nothing was changed.
            BearlakeError: the statement's own error; for a write, only if no earlier attempt may have happened.
        """
        attempt, was_lost = 1, False
        while True:
            try:
                return await self._run(self.sql(statement), values, is_read)
            except failures.FOREIGN as error:
                had_no_effect, is_undefined = failures.is_rolled_back(error), failures.is_undefined(error)
                may_repeat = had_no_effect or is_undefined or (is_repeatable and failures.is_lost(error))
                if not may_repeat or attempt >= ATTEMPTS_MAX:
                    if was_lost and not is_read and (is_undefined or failures.is_refusal(error)):
                        raise Unavailable(f"a lost attempt may have happened before this refusal: {error}") from error
                    kind = self._translated(error)
                    raise (
                        Overloaded(f"nothing was changed: {kind}") if is_undefined and not is_read else kind
                    ) from error
                was_lost = was_lost or failures.is_lost(error)
                attempt += 1

    async def row(
        self, statement: str, *values: object, is_repeatable: bool = True, is_read: bool = False
    ) -> asyncpg.Record | None:
        """Return the first row, or None."""
        rows = await self.rows(statement, *values, is_repeatable=is_repeatable, is_read=is_read)
        return rows[0] if rows else None

    async def value(self, statement: str, *values: object, is_repeatable: bool = True, is_read: bool = False) -> Any:
        """Return the first field of the first row, which must exist. (Any: its type depends on the statement.)"""
        return (await self.rows(statement, *values, is_repeatable=is_repeatable, is_read=is_read))[0][0]

    async def _run(self, statement: str, values: Sequence[object], is_read: bool) -> list[asyncpg.Record]:
        pool = self._readers if is_read else self._writers
        if pool is None:
            raise Unavailable("the metadata store is closed")
        while True:
            if not is_read and self._sessions.are_lost():
                await self._sessions.end_lost()
            connection = await pool.take()
            try:
                if is_read or await self._may_write(connection):
                    return await self._fetched(connection, statement, values)
            finally:
                pool.give_back(connection)

    async def _may_write(self, connection: Connection) -> bool:
        """Return whether the connection has a session, and none is lost: a connection may have closed while a step waited."""
        if not connection.session and not self._sessions.are_lost():
            await self._begin_session(connection)
        return not self._sessions.are_lost()

    async def _fetched(self, connection: Connection, statement: str, values: Sequence[object]) -> list[asyncpg.Record]:
        """Return the statement's rows. A connection without an answer, or whose session has ended, is closed and never used again."""
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
        except BaseException as error:
            if not failures.is_answer(error):
                connection.terminate()
            elif failures.is_session_over(error):
                connection.terminate()
                if self._writers is not None:
                    self._writers.expire()  # the sessions of the other connections may have ended too
            raise
        return rows

    async def _begin_session(self, connection: Connection) -> None:
        """Raises what the driver raises, and then closes the connection, so that the pool never hands out one that cannot write."""

        async def begin(session: int) -> None:
            statement, *values = call("begin_session", id=session)
            await self._fetched(connection, self.sql(statement), values)

        try:
            await self._sessions.begin(connection, begin)
        except BaseException:
            connection.terminate()
            raise

    async def _end_sessions(self, sessions: Sequence[int]) -> None:
        """Use a new connection, because those of the pool may lead to a former primary, where a lost session never ends.

        It has no session: a new session per attempt could leave one more backend that waits for a standby.
        """
        if self._writers is None:
            raise Unavailable("the metadata store is closed")
        connection = await self._connect()
        try:
            statement, *values = call("end_sessions", ids=sessions)
            await self._fetched(connection, self.sql(statement), values)
        finally:
            connection.terminate()

    async def close(self) -> None:
        """Close all connections; those that are still busy after a statement's time limit are cut, and all if the task is cancelled."""
        pools = [pool for pool in (self._writers, self._readers) if pool is not None]
        self._writers = self._readers = None
        try:
            await self._sessions.close()
            async with asyncio.timeout(self.settings.statement_timeout_ms / 1000 + GRACE_S):
                for pool in pools:
                    await pool.close()
        except failures.FOREIGN as error:
            log.debug("connections did not close well", extra={"error": repr(error)})
        finally:
            for pool in pools:
                pool.terminate()


class Session:
    """A separate connection; errors are translated as the pool's are."""

    def __init__(self, connection: asyncpg.Connection, sql: Any) -> None:
        self.connection = connection
        self._sql = sql

    async def execute(self, script: str) -> None:
        """Run a script of statements."""
        try:
            await self.connection.execute(self._sql(script))
        except failures.FOREIGN as error:
            raise failures.translated(error) from error

    async def value(self, statement: str, *values: object) -> Any:
        """Return the first field of the first row. (Any: its type depends on the statement.)"""
        try:
            return await self.connection.fetchval(self._sql(statement), *values)
        except failures.FOREIGN as error:
            raise failures.translated(error) from error

    async def first(self, statement: str, *values: object) -> list[Any]:
        """Return the fields of the first row, which must exist."""
        try:
            return list(await self.connection.fetchrow(self._sql(statement), *values))
        except failures.FOREIGN as error:
            raise failures.translated(error) from error

    async def rows(self, statement: str, *values: object) -> list[Any]:
        """Return the rows. (Any: the driver has no types.)"""
        try:
            return list(await self.connection.fetch(self._sql(statement), *values))
        except failures.FOREIGN as error:
            raise failures.translated(error) from error

    async def column(self, statement: str, *values: object) -> list[Any]:
        """Return the first field of each row."""
        try:
            return [row[0] for row in await self.connection.fetch(self._sql(statement), *values)]
        except failures.FOREIGN as error:
            raise failures.translated(error) from error

    async def close(self) -> None:
        """Close, or cut the connection if the database does not answer."""
        try:
            await self.connection.close(timeout=GRACE_S)
        except failures.FOREIGN:
            self.connection.terminate()


async def _refuse_writes(connection: asyncpg.Connection) -> None:
    """Let PostgreSQL refuse writes. Not as a connection parameter, because `target_session_attrs=read-write` in the URL checks that."""
    await connection.execute("set default_transaction_read_only = on")


@lru_cache(maxsize=256)
def _with_schema(statement: str, schema: str) -> str:
    return re.sub(r"\bbearlake\.", f'"{schema}".', statement)
