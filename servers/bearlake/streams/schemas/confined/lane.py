"""A bounded queue in front of a few helper processes. Schemas and values have a lane each, so that neither waits for the other.

The queue is bounded by the number and the bytes of its requests, and by the time that each of them waits. `line.py` decides whose turn it
is. Helpers start at first use. A thread waits for each helper; the event loop never does.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from bearlake.errors import Overloaded, Unavailable
from bearlake.streams.schemas.confined.frames import NEEDS_SCHEMA, Answer
from bearlake.streams.schemas.confined.helper_process import HelperProcess
from bearlake.streams.schemas.confined.limits import Limits
from bearlake.streams.schemas.confined.line import Line
from bearlake.telemetry import metrics
from bearlake.threads import Threads

GRACE_MS = 5_000
"""Longest time for a helper to start, and to answer after the kernel should have killed its child."""
ATTEMPT_COUNT = 2
"""Attempts per request: if the helper dies, the request is retried once with a new helper."""


class Call(NamedTuple):
    """A request to a child. `encode` runs on the lane's thread."""

    encode: Callable[[], bytes]
    processor_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The bounds of a lane."""

    helper_count: int
    queue_count: int
    """Requests that wait for a helper."""
    queue_bytes: int
    """Their size."""
    wait_ms: int
    """How long a request waits, until its answer."""


class Lane:
    """Runs requests in helpers. Use it from the event loop's thread; its creator closes it."""

    def __init__(self, kind: int, limits: Limits, room: Room) -> None:
        self._kind = kind
        self._limits = limits
        self._room = room
        self._threads = Threads("schema-helper", room.helper_count)
        self._requests: dict[Future[Answer], int] = {}
        self._helpers: set[HelperProcess] = set()
        self._idle: list[HelperProcess] = []
        self._line: Line[tuple[Future[Answer], Sequence[Call]]] = Line(time.monotonic)
        self._is_closed = False

    @property
    def request_count(self) -> int:
        """Requests that wait or run."""
        return len(self._requests)

    @property
    def size_bytes(self) -> int:
        """The size of the requests that wait or run."""
        return sum(list(self._requests.values()))

    def close(self) -> None:
        """Kill the helpers and their children; their requests fail with `Unavailable`."""
        self._is_closed = True
        self._threads.close()
        while (found := self._line.take()) is not None:
            waiting, _ = found[1]
            if waiting.set_running_or_notify_cancel():
                waiting.set_exception(Unavailable("the schema registry of this server is closed"))
        for helper in list(self._helpers):
            helper.kill()
        self._threads.join()
        for helper in list(self._helpers):
            self._end(helper)

    async def ask(self, calls: Sequence[Call], size_bytes: int, owner: str = "") -> Answer:
        """Run the first of `calls`; if its child needs the schema, run the next.

        `size_bytes`: memory of the largest. `owner`: see `Line`.

        A request that is larger than the whole queue runs alone.

        Raises:
            Overloaded, Unavailable: the request was not processed; try again.
        """
        if self._is_closed:
            raise Unavailable("the schema registry of this server is closed")
        room, waiting_bytes = self._room, self.size_bytes
        is_full = self._requests and waiting_bytes + size_bytes > room.queue_bytes
        if is_full or len(self._requests) >= room.helper_count + room.queue_count:
            metrics.REGISTRY_COMPILE_FAILURES.labels("queue").inc()
            raise Overloaded(f"{len(self._requests)} schemas wait already ({waiting_bytes} bytes), come back later")
        started = time.monotonic()

        def forget(done: Future[Answer]) -> None:
            self._requests.pop(done, None)
            self._line.drop(number)

        waiting: Future[Answer] = Future()
        self._requests[waiting] = size_bytes
        number = self._line.put(owner, (waiting, calls))
        waiting.add_done_callback(forget)
        try:
            self._threads.start(self._serve_next, lambda _: None)
        except Unavailable:
            if waiting.cancel():  # else a thread that is late for another request serves this one
                raise
        try:
            async with asyncio.timeout(room.wait_ms / 1000):
                return await asyncio.wrap_future(waiting)
        except TimeoutError as error:
            metrics.REGISTRY_COMPILE_FAILURES.labels("wait").inc()
            raise Overloaded("the server has too many schemas to compile, come back later") from error
        finally:
            metrics.REGISTRY_COMPILE_SECONDS.observe(time.monotonic() - started)

    # -- on a thread ---------------------------------------------------------------------------------------------

    def _serve_next(self) -> None:
        """Serve the request whose turn it is, if one waits: those that wait may have been cancelled."""
        found = self._line.take()
        if found is None:
            return
        owner, (waiting, calls) = found
        if not waiting.set_running_or_notify_cancel():
            return
        try:
            answer = self._ask(calls)
        except BaseException as error:  # noqa: BLE001 - the request's
            waiting.set_exception(error)
            return
        self._line.charge(owner, answer.processor_ms)
        waiting.set_result(answer)

    def _ask(self, calls: Sequence[Call]) -> Answer:
        """Return the child's answer, or how it ended. Raises `Unavailable`."""
        failure: Exception | None = None
        for _ in range(ATTEMPT_COUNT):
            if self._is_closed:
                break
            helper = self._idle.pop() if self._idle else self._started()
            try:
                found = self._converse(helper, calls)
            except TimeoutError as error:
                self._end(helper)
                failure = error
                break
            except (EOFError, OSError) as error:
                self._end(helper)
                failure = error
            except BaseException:
                self._end(helper)
                raise
            else:
                self._idle.append(helper)
                return found
        metrics.REGISTRY_COMPILE_FAILURES.labels("helper").inc()
        raise Unavailable("the process that compiles schemas ended early") from failure

    def _converse(self, helper: HelperProcess, calls: Sequence[Call]) -> Answer:
        first, *others = calls
        answer = self._call(helper, first)
        for call in others:
            if answer.message != NEEDS_SCHEMA:
                break
            answer = self._call(helper, call)
        return answer

    def _call(self, helper: HelperProcess, call: Call) -> Answer:
        return helper.ask(self._kind, call.encode(), call.processor_ms, self._limits.wall_ms_max + GRACE_MS)

    def _started(self) -> HelperProcess:
        try:
            helper = HelperProcess(self._limits)
        except OSError as error:
            metrics.REGISTRY_COMPILE_FAILURES.labels("helper").inc()
            raise Unavailable(f"the process that compiles schemas cannot be started: {error.strerror}") from error
        self._helpers.add(helper)
        if self._is_closed:  # `close` may have missed this helper
            helper.kill()
        return helper

    def _end(self, helper: HelperProcess) -> None:
        self._helpers.discard(helper)
        helper.close()
