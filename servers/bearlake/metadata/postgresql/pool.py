"""A bounded pool of connections, which lends one for a single statement.

The driver's own pool makes a task, three timers and a proxy for each loan; a commit spent a third of its processor time on them
(decision 313). Here, a loan of an idle connection is a step without a wait, a task or a timer. Only a caller that must wait for a
connection, or for a new one to connect, has a time limit.
"""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg

from bearlake.metadata.postgresql.connection import Connection

STATEMENTS_MAX = 50_000
"""Statements of one connection; a backend's memory grows with what it has cached."""


class Pool:
    """Connections of one kind. Use it from the event loop's thread only.

    The connection that was given back last is lent first, so that connections that the load does not need any more become idle.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], size_max: int, *, wait_s: float, idle_s: float
    ) -> None:
        """`wait_s`: longest wait for a connection. `idle_s`: a connection that nobody needed for so long is closed, except for the last."""
        self._connect = connect
        self._size_max = size_max
        self._wait_s = wait_s
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(size_max)
        self._idle: list[tuple[Connection, float]] = []
        """Connections that nobody uses, and the loop time since when; the oldest first."""
        self._lent: set[Connection] = set()
        self._expired: set[Connection] = set()
        """Lent connections that are not to be used again."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._closing = asyncio.Lock()

    async def open(self) -> None:
        """Connect once, to show that it works. Raises what `connect` raises."""
        await self._places.acquire()
        self.give_back(await self._take_or_connect())

    async def take(self) -> Connection:
        """Return a connection that is open as far as this process knows. The caller gives it back, in whatever state.

        Raises `TimeoutError` if there is no connection within the time limit, `asyncpg.InterfaceError` if the pool is closed, and what
        `connect` raises.
        """
        if not self._places.locked():
            await self._places.acquire()  # does not wait
            if (connection := self._take_idle()) is not None:
                return connection
            self._places.release()
        async with asyncio.timeout(self._wait_s):
            await self._places.acquire()
            return await self._take_or_connect()

    async def _take_or_connect(self) -> Connection:
        """Fill the place that the caller has taken; it is free again if this raises."""
        try:
            return self._take_idle() or await self._take_new()
        except BaseException:
            self._places.release()
            raise

    def _take_idle(self) -> Connection | None:
        while self._idle and not self._is_closed:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                self._lent.add(connection)
                return connection
            connection.terminate()  # the driver cleans up
        return None

    async def _take_new(self) -> Connection:
        self._check_open()
        connection = await self._connect()
        self._lent.add(connection)
        try:
            self._check_open()
        except asyncpg.InterfaceError:
            self._lent.discard(connection)
            connection.terminate()
            raise
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise asyncpg.InterfaceError("the connections are closed")

    def give_back(self, connection: Connection) -> None:
        """End a loan."""
        self._lent.discard(connection)
        is_worn = connection.is_closed() or connection.statement_count >= STATEMENTS_MAX
        if is_worn or connection in self._expired:
            self._expired.discard(connection)
            connection.terminate()
        else:
            self._idle.append((connection, self._loop.time()))
            if self._timer is None and len(self._idle) > 1 and not self._is_closed:
                self._timer = self._loop.call_later(self._idle_s, self._close_idle)
        self._places.release()

    def expire(self) -> None:
        """Use no connection again that exists now."""
        self._expired |= self._lent
        while self._idle:
            self._idle.pop()[0].terminate()

    def _close_idle(self) -> None:
        """Close connections that nobody needed for long, and look again when the next one may be due."""
        self._timer = None
        due = self._loop.time() - self._idle_s
        while len(self._idle) > 1 and self._idle[0][1] <= due:
            self._idle.pop(0)[0].terminate()
        if len(self._idle) > 1:
            self._timer = self._loop.call_at(self._idle[0][1] + self._idle_s, self._close_idle)

    async def close(self) -> None:
        """Return when all connections are given back and closed. Callers that wait for one get an error. Safe to repeat."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        async with self._closing:  # two that wait for all places would wait for each other
            taken_count = 0
            try:
                while taken_count < self._size_max:
                    await self._places.acquire()
                    taken_count += 1
                while self._idle:
                    await _closed(self._idle.pop()[0])
            finally:
                for _ in range(taken_count):
                    self._places.release()

    def terminate(self) -> None:
        """Cut all connections; those that are lent raise in their callers."""
        self._is_closed = True
        self.expire()
        for connection in list(self._lent):
            connection.terminate()


async def _closed(connection: Connection) -> None:
    try:
        await connection.close()
    except BaseException:
        connection.terminate()
        raise
