"""Learns of new log entries: LISTEN on a separate connection, with polling as the fallback.

Notifications are hints. While there is a listening connection, the head is read once after LISTEN, because earlier entries were not
notified, and then at most once per `poll_interval_listening_ms`; a waiter that cannot listen polls often. So a lost notification, a lost
connection or a pooler that does not pass notifications on costs time, but never an entry. There is no background task: waiters keep the
listening connection alive, with a growing pause between attempts.
"""

import asyncio
from contextlib import suppress

import asyncpg

from bearlake.errors import BearlakeError
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.database import Database, Session

CHANNEL = "bearlake.log"
"""Replaced as all names of the schema are: each schema has its own channel."""


class Watch:
    """The newest known position, and the waiters for newer positions. Positions only grow."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settings = database.settings
        self._head = 0
        self._next_look = 0.0  # loop time at which a waiter that listens reads the head again
        self._waiters: set[asyncio.Future[None]] = set()
        self._session: Session | None = None
        self._is_connecting = False
        self._is_closed = False
        self._backoff_ms = 0
        self._next_attempt = 0.0

    def saw(self, position: int) -> None:
        """Wake waiters: an entry with this position is committed."""
        if position > self._head:
            self._head = position
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, after: int, *, wait_ms: int) -> None:
        """Return when an entry after `after` is known, or `wait_ms` later at the latest. Raises `Unavailable` like any step."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while self._head <= after:
            if self._session is None or loop.time() >= self._next_look:
                await self._look()
            remaining = deadline - loop.time()
            if self._head > after or remaining <= 0:
                return
            if not await self._started_to_listen(remaining):
                await self._next_hint(min(remaining, self._pause_s()))

    async def _look(self) -> None:
        """Read the head. The next look has time if all later entries are notified: this read began after LISTEN."""
        session, begun = self._session, asyncio.get_running_loop().time()
        self.saw(await self._database.value("select position from bearlake.log_head", is_read=True))
        if session is not None and session is self._session:
            self._next_look = begun + self._settings.poll_interval_listening_ms / 1000

    def _pause_s(self) -> float:
        """Return how long to wait for a hint until the head is read again."""
        if self._session is None:
            return self._settings.poll_interval_ms / 1000
        return max(0.0, self._next_look - asyncio.get_running_loop().time())

    async def _next_hint(self, timeout_s: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return
        finally:
            self._waiters.discard(waiter)

    async def _started_to_listen(self, timeout_s: float) -> bool:
        """Open the listening connection if there is none. Returns True if an entry may have arrived meanwhile: check the head again.

        No-op if the wait may be shorter than the connect, during the pause after a failure, and while another waiter connects.
        """
        loop = asyncio.get_running_loop()
        is_due = loop.time() >= self._next_attempt and timeout_s * 1000 >= self._settings.listen_backoff_min_ms
        if self._session is not None or self._is_connecting or self._is_closed or not is_due:
            return False
        self._is_connecting = True
        self._backoff_ms = min(
            max(self._backoff_ms * 2, self._settings.listen_backoff_min_ms), self._settings.listen_backoff_max_ms
        )
        self._next_attempt = loop.time() + self._backoff_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect()
        except (BearlakeError, TimeoutError):
            return False  # polling continues and reports problems of the store
        finally:
            self._is_connecting = False
        return True

    async def _connect(self) -> None:
        session = await self._database.connect(self._settings.statement_timeout_ms)
        try:
            session.connection.add_termination_listener(self._lost)
            await session.connection.add_listener(self._database.sql(CHANNEL), self._received)
        except failures.FOREIGN as error:
            await session.close()
            raise failures.translated(error) from error
        except asyncio.CancelledError:
            session.connection.terminate()
            raise
        if self._is_closed or session.connection.is_closed():
            await session.close()
            return
        self._session = session
        self._next_look = 0.0  # what was committed before LISTEN is not notified
        self._backoff_ms = 0

    def _received(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        with suppress(ValueError):
            self.saw(int(str(payload)))

    def _lost(self, connection: asyncpg.Connection) -> None:
        if self._session is not None and self._session.connection is connection:
            self._session = None
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()
