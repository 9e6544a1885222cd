"""Waiting for the log to grow: commits of this process wake waiters, unless they are applied already; polling the file finds others.

`PRAGMA data_version` changes when another connection has committed. A poll costs microseconds, and only runs while a caller waits.
If nothing has happened for a while, polls become less frequent.
"""

import asyncio

from bearlake.metadata.sqlite.catchup import read_heads
from bearlake.metadata.sqlite.database import Database

IDLE_AFTER_S = 1.0
"""Time without an entry after which polls are less frequent."""


class Waiting:
    """The followers of one process that wait for entries."""

    def __init__(self, database: Database, *, poll_interval_ms: int, idle_ms: int) -> None:
        self._database = database
        self._poll_s = poll_interval_ms / 1000 if database.is_shared else 0.0
        self._idle_poll_s = max(self._poll_s, idle_ms / 1000)
        self._idle_from_s = 0.0
        self._head = 0
        self._waiters: dict[asyncio.Future[bool], None] = {}  # ordered, so that a simulation is repeatable
        self._data_version = -1

    def notify(self, position: int) -> None:
        """Wake the waiters for `position`, which the log has reached."""
        if position > self._head:
            self._head = position
            for waiter in self._waiters:
                _resolve(waiter, True)

    def note(self, position: int) -> None:
        """The log has reached `position`; waiters return at their next poll, which then need not read the file.

        To wake the follower for each of many commits that it has applied would cost a tenth of a small flush.
        """
        self._head = max(self._head, position)

    async def wait(self, after: int, wait_ms: int) -> None:
        """Return when the head has passed `after`, or after `wait_ms`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        if self._data_version < 0 or not self._poll_s:
            self.notify(await self._database.run_read(self._look))
        while self._head <= after and (left := deadline - loop.time()) > 0:
            woken: asyncio.Future[bool] = loop.create_future()
            self._waiters[woken] = None
            poll_s = self._poll_s if deadline - left < self._idle_from_s else self._idle_poll_s
            # A separate timer: asyncio.wait costs a tenth of a small flush, and every commit of this server ends a wait.
            timer = loop.call_later(min(left, poll_s) if self._poll_s else left, _resolve, woken, False)
            try:
                is_hint = await woken
            finally:
                timer.cancel()
                self._waiters.pop(woken, None)
            if not is_hint and self._poll_s and self._head <= after:
                self.notify(await self._database.run_read(self._look))
        if self._head > after:
            self._idle_from_s = loop.time() + IDLE_AFTER_S

    def _look(self) -> int:
        """Return the head if the file has changed since the last poll, else 0."""
        (version,) = self._database.reader.execute("PRAGMA data_version").fetchone()
        if version == self._data_version:
            return 0
        self._data_version = version
        return self._read_head()

    def _read_head(self) -> int:
        with self._database.reading() as connection:
            return read_heads(connection).head


def _resolve(waiter: asyncio.Future[bool], is_hint: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_hint)
