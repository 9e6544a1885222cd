"""The sessions of one process in the store: begun before a connection's first write, ended before the next write after one was lost.

I12: a write that was given up cannot happen later. A connection that writes has a session in the store, and the store refuses the
writes of a session that was ended (`migrations/0017_sessions.sql`, `0020_lazy_sessions.sql`). A session is *lost* when its connection is
closed: a statement of it may still be on its way, or in the middle. No write begins while a session is lost.

A session's id is chosen here, before the store is asked to begin it, so that a beginning without an answer can be ended, too: the
number of backends that this process gave up is bounded by its number of connections.

When a session has begun, all that is visible to its connection is as durable as the database promises: its row was committed later, so
a synchronous standby that has the row has everything before it. So no write, and no repeat of a write, is answered from a commit that
a restart of the primary showed before the standby had it.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

from bearlake.errors import Unavailable
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.connection import Connection


class Sessions:
    """Which connection has which session, and the one attempt to end those that are lost."""

    def __init__(self, end: Callable[[Sequence[int]], Awaitable[object]]) -> None:
        """`end` lets the store end sessions on a connection that needs none; it returns when nothing of them can happen any more."""
        self._end = end
        self._connections: dict[int, Connection] = {}
        self._attempt: asyncio.Task[None] | None = None

    def lost(self) -> list[int]:
        """Sessions whose connection is closed, and that have not ended yet."""
        return [session for session, connection in self._connections.items() if connection.is_closed()]

    async def begin(self, connection: Connection, begin: Callable[[int], Awaitable[object]]) -> None:
        """Begin a session for this connection, by asking the store with `begin`. Raises what `begin` raises."""
        session = -1 - secrets.randbits(62)  # the store's own ids, those of older programs, are positive
        self._connections[session] = connection
        try:
            await begin(session)
        except BaseException as error:
            if failures.is_answer(error):
                del self._connections[session]
            raise
        connection.session = session

    async def end_lost(self) -> None:
        """Return when no session is lost. All callers that wait share one attempt and its outcome; none of them can cancel it.

        Raises what the driver raises; 55P03 when one of them is in the middle of a transaction for longer than the lock timeout;
        `Unavailable` when the store is closed meanwhile.
        """
        while self.lost():
            if self._attempt is None:
                self._attempt = asyncio.get_running_loop().create_task(self._end_now())
                self._attempt.add_done_callback(self._attempted)
            attempt = self._attempt
            await asyncio.wait([attempt])
            if attempt.cancelled():
                raise Unavailable("the metadata store is closed")
            attempt.result()

    async def _end_now(self) -> None:
        lost = self.lost()
        await self._end(lost)
        for session in lost:
            self._connections.pop(session, None)

    def _attempted(self, attempt: asyncio.Task[None]) -> None:
        self._attempt = None
        if not attempt.cancelled():
            attempt.exception()  # those who waited have raised it

    async def close(self) -> None:
        """Stop an attempt that nobody waits for any more."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
