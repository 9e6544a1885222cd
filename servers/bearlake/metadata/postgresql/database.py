"""Connections to PostgreSQL: the pool, time limits, repeats, and the door through which every statement goes.

Statements are written with the schema name `bearlake.`, which `Database` replaces by the configured one. Each runs in a transaction
of its own (one statement, often one stored function).

I12: a write that was given up cannot happen later. Each connection of the pool has a session in the store, and the store refuses
writes of a session that was ended (`migrations/0017_sessions.sql`). A statement without an answer (timeout, cancellation, broken
connection) closes its connection, and this process begins no write while it has a session whose connection is closed: it ends that
session first. Then the outcome of the write is final, and a repeat finds what it did. Reads need none of this.

A pooler between must be in session mode: a session belongs to one connection of the database.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from bearlake.errors import BearlakeError, Invalid, Unavailable
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.settings import PostgresqlSettings

ATTEMPTS_MAX = 3
"""Tries of a step that had no effect (deadlock) or may be repeated (connection lost): the caller retries beyond."""

GRACE_S = 1.0
"""How much longer than the database's own limit this process waits for an answer."""

MALFORMED = "the metadata URL is malformed; expected postgresql://user:password@host:port/database"


def split_url(url: str, schema: str) -> tuple[str, str]:
    """The URL for the driver, and the schema that it names with `?schema=` (default: the one given).

    Raises:
        Invalid: not a PostgreSQL URL. The message does not repeat it, since it may hold a password.
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise Invalid(MALFORMED) from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise Invalid("the metadata URL must start with postgresql://")
    kept = [(key, value) for key, value in query if key != "schema"]
    named = [value for key, value in query if key == "schema"]
    return urlunsplit(parts._replace(query=urlencode(kept))), (named or [schema])[-1]


class Database:
    """A bounded pool of connections to one schema of one database."""

    def __init__(self, url: str, settings: PostgresqlSettings) -> None:
        self.settings = settings
        self._url = url
        self._pool: asyncpg.Pool | None = None
        self._was_let_in = False
        self._sessions: dict[int, asyncpg.Connection] = {}
        """Sessions that may still write, by id; those whose connection is closed are ended before the next write."""
        self._ending = asyncio.Lock()

    async def open(self) -> None:
        """Make the pool, with one connection to show that it works. Raises `Unavailable`, `Denied`, `NotFound`, `Invalid`."""
        settings = self.settings
        try:
            self._pool = await asyncpg.create_pool(
                **self._arguments(settings.statement_timeout_ms),
                min_size=1,
                max_size=settings.connections_max,
                max_inactive_connection_lifetime=300.0,
                init=self._begin_session,
                reset=_leave_as_it_is,
            )
            self._was_let_in = True
        except failures.FOREIGN as error:
            raise failures.translated(error) from error
        except ValueError:
            raise Invalid(MALFORMED) from None

    async def connect(self, statement_timeout_ms: int) -> "Session":
        """A connection beside the pool, with its own time limit; the caller closes it."""
        try:
            return Session(await asyncpg.connect(**self._arguments(statement_timeout_ms)), self.sql)
        except failures.FOREIGN as error:
            raise failures.translated(error) from error
        except ValueError:
            raise Invalid(MALFORMED) from None

    def _arguments(self, statement_timeout_ms: int) -> dict[str, Any]:
        settings = self.settings
        sessions = {
            "application_name": "bearlake",
            "statement_timeout": str(statement_timeout_ms),
            "lock_timeout": str(min(settings.lock_timeout_ms, statement_timeout_ms)),
            "idle_in_transaction_session_timeout": str(settings.idle_transaction_timeout_ms),
            "default_transaction_isolation": "read committed",
            # Every statement here goes by an index, also when the planner's statistics are of the time when all was empty.
            "jit": "off",
            "enable_seqscan": "off",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "plan_cache_mode": "force_generic_plan",
        }
        password = {"password": self._password} if settings.password_file else {}
        return {
            **password,
            "dsn": self._url,
            "timeout": settings.connect_timeout_ms / 1000,
            "command_timeout": statement_timeout_ms / 1000 + GRACE_S,
            "statement_cache_size": settings.statement_cache_count,
            "server_settings": sessions,
        }

    def _password(self) -> str:
        """The driver asks for it with every new connection. Raises `Unavailable`: the file may come back."""
        try:
            return Path(self.settings.password_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"metadata.postgresql.password_file cannot be read: {error}") from error

    def _translated(self, error: BaseException) -> BearlakeError:
        """As `failures.translated`; but who was let in once is not sent away by a password that is being rotated."""
        kind = failures.translated(error)
        if self._was_let_in and failures.is_unknown_user(error):
            return Unavailable(str(kind))
        return kind

    def sql(self, statement: str) -> str:
        """The statement with the schema's real name."""
        return _with_schema(statement, self.settings.schema)

    async def rows(
        self, statement: str, *values: object, is_repeatable: bool = True, is_read: bool = False
    ) -> list[asyncpg.Record]:
        """Run one statement and return its rows. `is_read`: it changes nothing, so it need not wait until sessions have ended.

        A step that surely had no effect (deadlock, serialization failure, ended session) is repeated; one whose connection broke
        only if `is_repeatable`: it changes nothing, or changes it once however often it runs.

        Raises:
            Unavailable: no connection, no answer in time, or the connection broke. A write may have happened, or may happen until
                the next write of this process begins, but not later.
            BearlakeError: the kind that the statement itself raised.
        """
        attempt = 1
        while True:
            try:
                return await self._run(self.sql(statement), values, is_read)
            except failures.FOREIGN as error:
                may_repeat = failures.is_rolled_back(error) or (is_repeatable and failures.is_lost(error))
                if not may_repeat or attempt >= ATTEMPTS_MAX:
                    raise self._translated(error) from error
                attempt += 1

    async def row(
        self, statement: str, *values: object, is_repeatable: bool = True, is_read: bool = False
    ) -> asyncpg.Record | None:
        """The first row, or None."""
        rows = await self.rows(statement, *values, is_repeatable=is_repeatable, is_read=is_read)
        return rows[0] if rows else None

    async def value(self, statement: str, *values: object, is_repeatable: bool = True, is_read: bool = False) -> Any:
        """The first field of the first row, which must exist. (Any: its type is the statement's.)"""
        return (await self.rows(statement, *values, is_repeatable=is_repeatable, is_read=is_read))[0][0]

    async def _run(self, statement: str, values: Sequence[object], is_read: bool) -> list[asyncpg.Record]:
        while True:
            if not is_read:
                await self._end_sessions()
            async with self._acquired() as connection:
                if is_read or not self._closed_sessions():  # a connection may have closed while this one was awaited
                    return await self._fetched(connection, statement, values)

    def _acquired(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        if self._pool is None:
            raise Unavailable("the metadata store is closed")
        acquired: AbstractAsyncContextManager[asyncpg.Connection] = self._pool.acquire(
            timeout=self.settings.acquire_timeout_ms / 1000
        )
        return acquired

    async def _fetched(
        self, connection: asyncpg.Connection, statement: str, values: Sequence[object]
    ) -> list[asyncpg.Record]:
        """The statement's rows. A connection that owes an answer, or whose session has ended, is closed and never used again."""
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
        except BaseException as error:
            if not failures.is_answer(error):
                connection.terminate()
            elif failures.is_session_over(error):
                connection.terminate()
                if self._pool is not None:
                    await self._pool.expire_connections()  # the sessions of the others may have ended with it
            raise
        return rows

    async def _begin_session(self, connection: asyncpg.Connection) -> None:
        session = await connection.fetchval(self.sql("select bearlake.begin_session()"))
        self._sessions[session] = connection

    def _closed_sessions(self) -> list[int]:
        return [session for session, connection in self._sessions.items() if connection.is_closed()]

    async def _end_sessions(self) -> None:
        """End the sessions whose connections are closed: when this returns, nothing of them can happen any more.

        Raises what the driver raises; 55P03 when one of them is in the middle of a transaction for longer than the lock timeout.
        """
        if not self._closed_sessions():
            return
        async with self._ending:
            if closed := self._closed_sessions():
                async with self._acquired() as connection:
                    await self._fetched(connection, self.sql("select bearlake.end_sessions($1)"), [closed])
                for session in closed:
                    del self._sessions[session]

    async def close(self) -> None:
        """Close all connections; those still busy after a statement's time limit are cut."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(self.settings.statement_timeout_ms / 1000 + GRACE_S):
                await pool.close()
        except failures.FOREIGN:
            pool.terminate()


class Session:
    """One connection of its own; errors are translated as the pool's are."""

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
        """The first field of the first row. (Any: its type is the statement's.)"""
        try:
            return await self.connection.fetchval(self._sql(statement), *values)
        except failures.FOREIGN as error:
            raise failures.translated(error) from error

    async def close(self) -> None:
        """Close, or cut when the other side does not answer."""
        try:
            await self.connection.close(timeout=GRACE_S)
        except failures.FOREIGN:
            self.connection.terminate()


async def _leave_as_it_is(_: asyncpg.Connection) -> None:
    """Sessions keep no state between steps, so there is nothing to reset (which would cost a round trip)."""


@lru_cache(maxsize=256)
def _with_schema(statement: str, schema: str) -> str:
    return re.sub(r"\bbearlake\.", f'"{schema}".', statement)
