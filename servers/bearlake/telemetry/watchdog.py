"""A watchdog of the event loop: how long its thread computed before it ran a callback that was ready, and who computed.

A request that holds the event loop holds every client of every protocol. The watchdog's thread asks the loop, every `interval_s`, to run a
callback, and compares the processor time of the loop's thread. A busy machine or a stopped process alone takes none of that time. If the
time exceeds the limit, the thread takes the loop's stack while the callback still computes, and the watchdog reports it with the request
that began last (`begin`).
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

log = logging.getLogger(__name__)

INTERVAL_S = 0.05
"""Measured: 0.4 % of a core. A hold of twice this time is always seen, a shorter one with luck."""
LIMIT_S = 0.05
"""Longest processor time (s) that one turn of the event loop should take."""
LOG_PAUSE_S = 10.0
"""Shortest time between two log lines; what lies between is counted."""
_STACK_DEPTH_MAX = 12


class Stall(NamedTuple):
    """A turn of the event loop that took longer than the limit."""

    held_s: float
    """Processor time of the loop's thread."""
    request: str
    """The request that began last, such as `kafka METADATA`."""
    stack: str
    """The loop's stack while it was held, innermost function last; empty if the loop was free again before the thread looked."""


class Doing:
    """What the event loop does."""

    __slots__ = ("request",)

    def __init__(self) -> None:
        self.request = "none"
        """The kind of the request that began last: one of a bounded number of texts."""


DOING = Doing()


def begin(request: str) -> None:
    """Note that the event loop begins a request of this kind. `request` is one of a bounded number of texts."""
    DOING.request = request


class Watchdog:
    """Watches the event loop of the thread that enters it; an asynchronous context."""

    def __init__(
        self,
        held: Callable[[float], None],
        stalled: Callable[[Stall], None],
        *,
        interval_s: float = INTERVAL_S,
        limit_s: float = LIMIT_S,
    ) -> None:
        """`held` gets the processor time (s) before each callback, `stalled` each time above `limit_s`; both run in the event loop."""
        self._held = held
        self._stalled = stalled
        self._interval_s = interval_s
        self._limit_s = limit_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-watchdog", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._watched = 0
        self._clock = 0
        self._is_asked = False
        self._asked_at = 0.0
        self._stack = ""
        self._request = ""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._watched)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    # -- in the watchdog's thread --------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            now = time.clock_gettime(self._clock)
            if not self._is_asked:
                self._is_asked, self._asked_at = True, now
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:
                    return  # the loop is closed
            elif now - self._asked_at >= self._limit_s and not self._stack:
                self._request = DOING.request
                self._stack = _stack_of(self._watched)

    # -- in the event loop ---------------------------------------------------------------------------------------

    def _answer(self) -> None:
        held_s = time.clock_gettime(self._clock) - self._asked_at
        self._held(held_s)
        if held_s >= self._limit_s:
            self._stalled(Stall(held_s, self._request or DOING.request, self._stack))
        self._stack = self._request = ""
        self._is_asked = False


class StallLog:
    """Logs stalls, at most one line per `LOG_PAUSE_S`."""

    def __init__(self, count: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`count` counts a stall by its request."""
        self._count = count
        self._clock = clock
        self._next_line = 0.0
        self._unlogged_count = 0

    def add(self, stall: Stall) -> None:
        """Count the stall, and log it unless the last line is recent."""
        self._count(stall.request)
        now = self._clock()
        if now < self._next_line:
            self._unlogged_count += 1
            return
        self._next_line = now + LOG_PAUSE_S
        log.warning(
            "a request held the event loop",
            extra={
                "request": stall.request,
                "held_ms": round(stall.held_s * 1000),
                "stack": stall.stack,
                "unlogged": self._unlogged_count,
            },
        )
        self._unlogged_count = 0


def _stack_of(thread: int) -> str:
    innermost = sys._current_frames().get(thread)
    if innermost is None:
        return ""
    frames = traceback.extract_stack(innermost, limit=_STACK_DEPTH_MAX)
    return " > ".join(f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in frames)
