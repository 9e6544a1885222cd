"""Waits until a server's view of the catalog has caught up with the store.

A server follows the commit log a little behind. So a stream that its view lacks may be deleted, or created a moment ago by another server;
a partition that its view lacks may be new. Code that would act on the absence calls `wait` first. A stream that is still absent then is
deleted.

    absent in the view ──> head of the log, read now ──> the view has reached it ──> still absent: deleted
"""

import asyncio
from collections.abc import Awaitable, Callable

from bearlake.errors import Unavailable

WAIT_MS_MAX = 3_000
"""Longest wait (ms), the read of the head included. A server that is further behind cannot say what is deleted."""


class CatchingUp:
    """The log position of one view, and the callers that wait for it. Use it from the event loop's thread only."""

    def __init__(self, head: Callable[[], Awaitable[int]] | None = None) -> None:
        """`head` reads the log's newest position from the store; None: the view has no other source, and is never behind."""
        self._head = head
        self.position = 0
        """The log position up to which the view includes changes of streams."""
        self.on_wait: Callable[[], None] = lambda: None
        """Called when a caller begins to wait for entries of the log."""
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._reading = asyncio.Lock()
        self._begun_count = 0
        """Reads of the head that have begun."""
        self._last = 0, 0
        """The newest read that succeeded: its number, from 1 on, and the head."""

    @property
    def has_waiters(self) -> bool:
        """Whether callers wait for entries of the log."""
        return bool(self._waiting)

    def reached(self, position: int) -> None:
        """Set the view's position, and wake the callers that waited for it."""
        self.position = position
        for waiter, wanted in list(self._waiting.items()):
            if wanted <= position and not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Return when the view includes every change that the store had at the time of this call.

        Raises `Unavailable`: the store did not answer, or this server is more than `WAIT_MS_MAX` behind.
        """
        if self._head is None:
            return
        try:
            async with asyncio.timeout(WAIT_MS_MAX / 1000):
                wanted = await self._read(self._head)
                if wanted > self.position:
                    await self._wait_for(wanted)
        except TimeoutError as error:
            raise Unavailable(f"this server did not catch up with the commit log within {WAIT_MS_MAX} ms") from error

    async def _read(self, head: Callable[[], Awaitable[int]]) -> int:
        """Return a head whose read began after this call. Callers during one read share the next, so that there is one read at a time."""
        before = self._begun_count
        async with self._reading:
            if self._last[0] <= before:
                self._begun_count += 1
                number = self._begun_count
                self._last = number, await head()
            return self._last[1]

    async def _wait_for(self, position: int) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = position
        self.on_wait()
        try:
            await waiter
        finally:
            del self._waiting[waiter]
