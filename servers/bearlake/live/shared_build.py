"""Builds that several callers share.

A caller never gets a build that began before its call, so what it gets is not older than its call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedBuild(Generic[T]):
    """Runs one build at a time. Callers that arrive during a build share the next one. Belongs to one event loop."""

    def __init__(self, build: Callable[[], Awaitable[T]], pause_ms: int = 0) -> None:
        """`build` must end by itself: a caller that gives up does not stop it. `pause_ms`: shortest time between two builds' beginnings."""
        self._build = build
        self._pause_s = pause_ms / 1000
        self._next_s = 0.0
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """Return the result of a build that begins after this call, or raise its error."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
            self._next.add_done_callback(_look_at_error)
        return await asyncio.shield(self._next)

    def close(self) -> None:
        """Cancel the builds."""
        for task in (self._running, self._next):
            if task is not None:
                task.cancel()

    async def _run(self, before: "asyncio.Task[T] | None") -> T:
        if before is not None:
            await asyncio.wait([before])
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._next_s - loop.time())
        self._next_s = loop.time() + self._pause_s
        self._running, self._next = self._next, None
        try:
            return await self._build()
        finally:
            self._running = None  # callers have the result; nobody else may keep it in memory


def _look_at_error(task: "asyncio.Task[T]") -> None:
    """Take the error of a build that nobody waits for any more, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
