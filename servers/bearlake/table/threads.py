"""The threads that call the catalog. Tables that do not answer leave threads to tables that do (I11).

A call that hangs occupies its thread until its own deadlines. If the last call for a table had no answer, the calls for this table take
at most half of the threads, together with those for all other such tables. The next answer removes the table from them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from bearlake.errors import Unavailable

T = TypeVar("T")

UNANSWERED_COUNT_MAX = 10_000
"""Tables that are remembered because they did not answer. A forgotten table may take any thread."""


class TableThreads:
    """Runs blocking calls on `count` threads, up to `pending_count_max` at once; further callers wait."""

    def __init__(self, *, count: int, pending_count_max: int) -> None:
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="tables")
        self._places = asyncio.Semaphore(pending_count_max)
        self._half = asyncio.Semaphore(max(1, count // 2))
        """Threads for tables that did not answer."""
        self._unanswered: OrderedDict[str, None] = OrderedDict()

    async def run(self, what: str, call: Callable[[], T], *, deadline_ms: int) -> T:
        """Return the result of `call`, which concerns the table `what`. The thread of a call that takes too long continues.

        Raises what `call` raises; `TimeoutError` after `deadline_ms`; `Unavailable` after `shutdown`.
        """
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                answer = await (self._run_limited(call) if what in self._unanswered else self._run(call))
        except (Unavailable, TimeoutError):
            self._unanswered[what] = None
            self._unanswered.move_to_end(what)
            if len(self._unanswered) > UNANSWERED_COUNT_MAX:
                self._unanswered.popitem(last=False)
            raise
        except Exception:
            self._unanswered.pop(what, None)
            raise
        self._unanswered.pop(what, None)
        return answer

    def shutdown(self, *, wait: bool) -> None:
        """Start no more calls; with `wait`, block until the running calls have ended."""
        self._threads.shutdown(wait=wait)

    async def _run(self, call: Callable[[], T]) -> T:
        async with self._places:
            return await asyncio.wrap_future(self._submitted(call))

    async def _run_limited(self, call: Callable[[], T]) -> T:
        await self._half.acquire()
        running: Future[T] | None = None
        try:
            async with self._places:
                running = self._submitted(call)
                return await asyncio.wrap_future(running)
        finally:
            if running is None or running.done():
                self._half.release()
            else:  # the caller has given up, but the thread is still occupied
                running.add_done_callback(self._release_from_thread(asyncio.get_running_loop()))

    def _submitted(self, call: Callable[[], T]) -> "Future[T]":
        try:
            return self._threads.submit(call)
        except RuntimeError as error:  # `shutdown` came first
            raise Unavailable("the tables are closed") from error

    def _release_from_thread(self, loop: asyncio.AbstractEventLoop) -> Callable[["Future[Any]"], None]:
        def release(_: "Future[Any]") -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._half.release)

        return release
