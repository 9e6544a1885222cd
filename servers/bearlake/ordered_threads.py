"""Named threads for steps of two parts: first parts run at the same time, second parts one at a time, in the order of the steps.

    start ──► first part, in any thread ──► second part, once the steps before are over ──► ended, on the event loop, in order

No thread waits for another: a thread that has ended a part takes the next second part whose turn has come, also of a step that another
thread began. So one thread is enough for progress, and a wait for a turn needs no limit.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from bearlake.errors import Unavailable
from bearlake.threads import start_thread

Ended = Callable[[BaseException | None], None]


class OrderedThreads:
    """Up to `thread_count` threads, started when needed; the thread that became idle last works next, because its caches are warm.

    Use it from one event loop, in its thread.
    """

    def __init__(self, name: str, thread_count: int) -> None:
        self._name = name
        self._thread_count = thread_count
        self._lock = threading.Lock()
        """Guards the attributes below; never held while a part runs."""
        self._queue: deque[_Step] = deque()
        """Steps that no thread has begun."""
        self._line: deque[_Step] = deque()
        """Steps whose second part has not ended, in order."""
        self._is_advancing = False
        """Whether a thread runs second parts."""
        self._idle: list[threading.Lock] = []
        """Released to wake idle threads."""
        self._threads: set[threading.Thread] = set()
        self._is_closed = False

    def start(self, first: Callable[[], object], second: Callable[[], object], ended: Ended) -> None:
        """Run `first`, then `second` in the step's turn, then call `ended` on the event loop with the first error that they raised.

        `second` runs in any case. A step has no deadline and cannot be withdrawn; the caller bounds the steps.

        Raises:
            Unavailable: closed, or the system has no thread for it. Nothing was done.
        """
        if self._is_closed:
            raise Unavailable(f"the threads {self._name} are closed")
        if not self._idle and len(self._threads) < self._thread_count:
            start_thread(self._threads, self._name, self._work)
        step = _Step(first, second, ended, asyncio.get_running_loop())
        with self._lock:
            self._queue.append(step)
            self._line.append(step)
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            idle.release()

    def close(self) -> None:
        """Let the threads end after the steps that were started."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for wake in idle:
            wake.release()

    def _work(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        step: _Step | None = None
        while True:
            with self._lock:
                step, is_idle = self._following(step, wake)
            if step is not None:
                step.run()
            elif is_idle:
                wake.acquire()
            else:
                return

    def _following(self, step: "_Step | None", wake: threading.Lock) -> "tuple[_Step | None, bool]":
        """Note that a part of `step` is over; return the step whose next part this thread runs, or None and whether the thread stays idle.

        A thread that neither runs a part nor stays idle ends.
        """
        over = step if step is not None and step.is_ready else None
        if over is not None:
            self._line.popleft()
            self._is_advancing = False
        elif step is not None:
            step.is_ready = True
        following = self._take()
        is_idle = following is None and not self._is_closed
        if is_idle:
            self._idle.append(wake)  # before `tell`: if the event loop then starts a step, it wakes this thread
        if over is not None:
            over.tell()  # with the lock: in order
        return following, is_idle

    def _take(self) -> "_Step | None":
        if self._line and self._line[0].is_ready and not self._is_advancing:
            self._is_advancing = True
            return self._line[0]
        return self._queue.popleft() if self._queue else None


class _Step:
    """A step of two parts, and the first error of them."""

    __slots__ = ("_ended", "_error", "_first", "_loop", "_second", "is_ready")

    def __init__(
        self,
        first: Callable[[], object],
        second: Callable[[], object],
        ended: Ended,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._first = first
        self._second = second
        self.is_ready = False
        """Whether the first part is over."""
        self._ended = ended
        self._error: BaseException | None = None
        self._loop = loop

    def run(self) -> None:
        """Run the next part."""
        try:
            (self._second if self.is_ready else self._first)()
        except BaseException as raised:  # noqa: BLE001 - boundary: the caller gets it
            self._error = self._error or raised

    def tell(self) -> None:
        """Call `ended` on the event loop; nobody waits once the loop is closed."""
        error, self._error = self._error, None  # its traceback refers to this step
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended, error)
