"""The sessions of one process in the store: begun before a connection's first write, ended before the write that follows a lost session.

I12: a write that was given up cannot happen later. A connection that writes has a session in the store, and the store refuses writes of
an ended session (`functions/check_session.sql`). A session is *lost* when its connection is closed: one of its
statements may still be on its way, or half done. No write begins while a session is lost.

This process chooses a session's id before it asks the store to begin the session. So it can also end a session if the answer to
its begin was lost, and the number of abandoned backends never exceeds the number of connections.

Once a session has begun, everything that its connection can see is as durable as the database promises. The session's row was committed
later, so a synchronous standby that has the row has everything before it. A restart of the primary can make a commit visible before the
standby has it; no write, and no repeat of a write, is answered from such a commit.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

from bearlake.errors import Unavailable
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.connection import Connection


class Sessions:
    """The sessions of the connections, and the single attempt to end lost sessions."""

    def __init__(self, end: Callable[[Sequence[int]], Awaitable[object]]) -> None:
        """`end` ends sessions in the store, on a connection without a session; when it returns, they can have no further effect."""
        self._end = end
        self._connections: dict[int, Connection] = {}
        self._attempt: asyncio.Task[None] | None = None

    def lost(self) -> list[int]:
        """Return sessions whose connection is closed and that have not ended yet."""
        return [session for session, connection in self._connections.items() if connection.is_closed()]

    def are_lost(self) -> bool:
        """Return whether a session is lost."""
        return any(connection.is_closed() for connection in self._connections.values())

    async def begin(self, connection: Connection, begin: Callable[[int], Awaitable[object]]) -> None:
        """Begin a session for this connection, by asking the store with `begin`. Raises what `begin` raises."""
        session = -1 - secrets.randbits(62)  # ids that the store chose, for older programs, are positive
        self._connections[session] = connection
        try:
            await begin(session)
        except BaseException as error:
            if failures.is_answer(error):
                del self._connections[session]
            raise
        connection.session = session

    async def end_lost(self) -> None:
        """Return when no session is lost. All waiting callers share one attempt and its outcome; none of them can cancel it.

        Raises what the driver raises; 55P03 if a lost session is in the middle of a transaction for longer than the lock timeout;
        `Unavailable` if the store is closed meanwhile.
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
            attempt.exception()  # the waiting callers have raised it

    async def close(self) -> None:
        """Stop an attempt that no caller waits for."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
