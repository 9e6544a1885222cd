"""Named threads that run an event loop's blocking calls. A result costs one wake-up of the loop.

    run ─┬─ a place is free ──► queue, at most `pending_count_max` calls ──► a thread ──► answer, on the loop
         └─ else wait for a place, in order ──┘

Until a thread claims a call, its caller can withdraw it by cancellation, or its deadline does: then the call never runs. A claimed call
runs to its end; if its caller is gone, the result is dropped. A withdrawn call keeps its place until a thread passes over it, so
that the queue is bounded even while every thread hangs.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from bearlake.errors import Unavailable

Result = TypeVar("Result")


def start_thread(threads: set[threading.Thread], name: str, work: Callable[[], None]) -> None:
    """Add a running thread to those of a pool. If the system refuses it, the others do the work.

    Raises:
        Unavailable: the system refuses it, and there are no others.
    """
    thread = threading.Thread(target=work, name=f"{name}_{len(threads)}", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        if not threads:
            raise Unavailable(f"the system has no thread for {name}: {error}") from error
    else:
        threads.add(thread)


class Threads:
    """Up to `thread_count` threads, started when needed. Use it from one event loop, in its thread."""

    def __init__(
        self, name: str, thread_count: int, *, pending_count_max: int | None = None, deadline_ms: int | None = None
    ) -> None:
        """`pending_count_max`: calls that run or are queued for a thread; further callers wait. None: the caller sets the limit.

        `deadline_ms`: longest time of a call, including its wait for a thread. None: no limit.
        """
        self._name = name
        self._thread_count = thread_count
        self._pending_count_max = pending_count_max
        self._deadline_s = None if deadline_ms is None else deadline_ms / 1000
        self._queue: SimpleQueue[_Call | _Step | None] = SimpleQueue()
        self._pending_count = 0
        self._waiting: dict[_Call, None] = {}
        self._threads: set[threading.Thread] = set()
        self._is_closed = False

    @property
    def pending_count(self) -> int:
        """Calls that run or are queued for a thread."""
        return self._pending_count

    async def run(self, step: Callable[[], Result], borrowed: "Borrowed | None" = None) -> Result:
        """Return the result of `step`, or raise its error.

        If the caller is cancelled or the deadline passes, this raises once the `borrowed` buffers are free, although `step` may still run.

        Raises:
            TimeoutError: the deadline has passed.
            Unavailable: closed, or the system has no thread for it.
        """
        if self._is_closed:
            raise Unavailable(f"the threads {self._name} are closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        call = _Call(step, loop, answer)
        timer = None if self._deadline_s is None else loop.call_later(self._deadline_s, call.expire)
        try:
            if self._pending_count_max is None or self._pending_count < self._pending_count_max:
                self._hand_over(call)
            else:
                self._waiting[call] = None
            result: Result = await answer
        except BaseException:
            if not call.withdraw() and borrowed is not None:
                await borrowed.wait()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.pop(call, None)
            call.answer = None  # the answer's error refers to this frame: the queue must not hold it, nor a cycle
            del answer
        return result

    def start(self, step: Callable[[], object], ended: Callable[[BaseException | None], None]) -> None:
        """Run `step`, then call `ended` on the event loop with what the step raised; without a future, a timer or a wait for a place.

        The step has no deadline, cannot be withdrawn, and counts in `pending_count`: the caller bounds such steps.

        Raises:
            Unavailable: closed, or the system has no thread for it. Nothing was done.
        """
        if self._is_closed:
            raise Unavailable(f"the threads {self._name} are closed")
        self._hand_over(_Step(step, asyncio.get_running_loop(), ended))

    def close(self) -> None:
        """Let the threads end after the calls that are queued; calls that wait for a place fail with `Unavailable`."""
        self._is_closed = True
        while self._waiting:
            call, _ = self._waiting.popitem()
            call.fail(Unavailable(f"the threads {self._name} are closed"))
        for _ in range(len(self._threads)):  # a thread that ends leaves the set
            self._queue.put(None)

    def join(self) -> None:
        """Block until all threads have ended, after `close`."""
        for thread in list(self._threads):
            thread.join()

    def _hand_over(self, call: "_Call | _Step") -> None:
        """Queue a call that has a place. Raises `Unavailable`, with nothing done, if there is no thread."""
        if len(self._threads) < min(self._pending_count + 1, self._thread_count):  # also replaces a thread that died
            start_thread(self._threads, self._name, self._work)
        self._pending_count += 1
        self._queue.put(call)

    def _work(self) -> None:
        try:
            while (call := self._queue.get()) is not None:
                result, error = None, None
                try:
                    if call.claim():
                        result = call.step()
                except BaseException as raised:  # noqa: BLE001 - boundary: the caller gets it
                    error = raised
                with suppress(RuntimeError):  # the loop is closed: nobody waits
                    call.loop.call_soon_threadsafe(self._ended, call, result, error)
                del call, result, error  # an idle thread holds no buffers
        finally:
            self._threads.discard(threading.current_thread())

    def _ended(self, call: "_Call | _Step", result: object, error: BaseException | None) -> None:
        self._pending_count -= 1
        while self._waiting:
            following = next(iter(self._waiting))
            del self._waiting[following]
            try:
                self._hand_over(following)
            except Unavailable as failure:  # nobody would serve the others either
                following.fail(failure)
            else:
                break
        call.end(result, error)


class Borrowed:
    """Whether a thread still reads its caller's buffers, and a way to wait until it does not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._released = False
        self._wake: Callable[[], object] | None = None

    def release(self) -> None:
        """Called by the thread, any number of times."""
        with self._lock:
            self._released, wake, self._wake = True, self._wake, None
        if wake is not None:
            wake()

    async def wait(self) -> None:
        """Return when the buffers are free; a cancellation takes effect only then."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        is_cancelled = False
        with self._lock:
            if self._released:
                return
            self._wake = lambda: loop.call_soon_threadsafe(event.set)
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError:  # the caller must not get its buffers back yet
                is_cancelled = True
        if is_cancelled:  # also after a deadline, whose error a caller may retry
            raise asyncio.CancelledError


class _Call:
    """One call. Its first claimant owns it: a thread, which runs it, or its caller, which withdraws it."""

    __slots__ = ("_claims", "answer", "loop", "step")

    def __init__(
        self, step: Callable[[], object], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any]
    ) -> None:
        self.step = step
        self.loop = loop
        self.answer: asyncio.Future[Any] | None = answer
        """None once the caller has gone on."""
        self._claims = [None]

    def claim(self) -> bool:
        """Whether the claimant is the first; callable from any thread."""
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def withdraw(self) -> bool:
        """Claim the call for its caller; the queue may still hold it, but not its step."""
        if not self.claim():
            return False
        self.step = _nothing
        return True

    def end(self, result: object, error: BaseException | None) -> None:
        """Answer the caller, if it still waits."""
        if error is not None:
            self.fail(error)
        elif self.answer is not None and not self.answer.done():
            self.answer.set_result(result)

    def expire(self) -> None:
        """The deadline has passed."""
        self.fail(TimeoutError())

    def fail(self, error: BaseException) -> None:
        """Raise `error` for the caller, if it still waits."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # a caller that is cancelled at the same time never looks at it


class _Step:
    """A call that nobody awaits."""

    __slots__ = ("ended", "loop", "step")

    def __init__(
        self, step: Callable[[], object], loop: asyncio.AbstractEventLoop, ended: Callable[[BaseException | None], None]
    ) -> None:
        self.step = step
        self.loop = loop
        self.ended = ended

    def claim(self) -> bool:
        """A step always runs."""
        return True

    def end(self, _: object, error: BaseException | None) -> None:
        """Tell the caller."""
        self.ended(error)


def _nothing() -> None:
    """The step of a withdrawn call."""
