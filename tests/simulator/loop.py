"""A single-threaded asyncio event loop with virtual time and no real I/O.

Time stands still while a callback can run, and jumps to the next timer when none can. A seeded random source chooses which *process*
runs next: callbacks of one process keep asyncio's order, callbacks of different processes run in any order.

A process is a context (`contextvars`): everything started in it, directly or indirectly, belongs to it. A paused process keeps its
callbacks until it is resumed (a suspended virtual machine, a long garbage collection). A crashed process stays paused: none of its
`finally` blocks run. Two runs with the same seed and the same program take the same steps.
"""

import asyncio
import contextvars
import functools
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CLOCK_STEP_S = 1e-6
"""Timers fire this much late, so that rounding never makes a timer fire early (and spin)."""

STEP_COUNT_MAX = 5_000_000
"""Number of steps after which a run counts as stuck in a loop."""


class Stuck(Exception):
    """The main coroutine is not done but no callback can run, or the run exceeded its limits."""


class Process:
    """One simulated process. Start work in it with `context.run(…)` or `loop.create_task(…, context=process.context)`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.is_paused = False
        self.context = contextvars.Context()
        self.context.run(_PROCESS.set, self)


_PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


def current_process() -> str:
    """Return the name of the process that runs now."""
    process = _PROCESS.get(None)
    return process.name if process is not None else "main"


class SimulationLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time. `failures` are unhandled errors of callbacks and tasks."""

    def __init__(self, randomness: random.Random) -> None:
        self._is_running = False
        super().__init__()
        self._random = randomness.random
        self._time = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process]] = []
        self._timer_count = 0
        self._runnable: list[Process] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._task_count_checked = 1_000
        self._main = Process("main")
        self._processes = [self._main]
        self.step_count = 0
        self.failures: list[dict[str, Any]] = []
        self._is_closing = False
        self.abort: BaseException | None = None
        """If set, `run` raises it before the next step."""

    # -- processes -----------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        """Create a process."""
        process = Process(name)
        self._processes.append(process)
        return process

    def pause(self, process: Process) -> None:
        """Run no callback of the process until `resume`; callbacks that become ready wait."""
        if not process.is_paused:
            process.is_paused = True
            if process in self._runnable:
                self._runnable.remove(process)

    def resume(self, process: Process) -> None:
        """Resume a paused process; time has passed for it."""
        if process.is_paused:
            process.is_paused = False
            if process.ready:
                self._runnable.append(process)

    def skip(self, seconds: float) -> None:
        """Advance time between two steps, as if the machines were suspended: all timers in that period are due at once."""
        self._time += seconds

    # -- asyncio.BaseEventLoop -----------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._time

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in its process, in the order of the calls."""
        if context is None:
            context = contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle, context.get(_PROCESS, self._main))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback `delay` virtual seconds from now."""
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback at a virtual time; timers of one time run in the order of the calls."""
        if context is None:
            context = contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, handle, context.get(_PROCESS, self._main)))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Create a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Create a task of this loop. The loop keeps it alive until it is done, even without other references or after a crash."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._task_count_checked:
            self._forget_done()
            self._task_count_checked = 2 * len(self._tasks) + 1_000
        return task

    def _forget_done(self) -> None:
        """Drop tasks that are done. Keep tasks whose error was not retrieved: the waiting task may not have run yet."""
        self._tasks = [task for task in self._tasks if not task.done() or task._log_traceback]

    def _report_unretrieved_errors(self) -> None:
        """Report each task error that was not retrieved by the end as a failure."""
        for task in self._tasks:
            if task.done() and task._log_traceback:
                self.call_exception_handler({"message": "the error was never retrieved", "exception": task.exception()})

    def get_debug(self) -> bool:
        """False."""
        return False

    def is_running(self) -> bool:
        """Return whether `run` is executing."""
        return self._is_running

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record the failure."""
        self.failures.append(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are dropped when they are due."""

    # -- running -------------------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T], *, time_max_s: float = 3_600.0) -> T:
        """Run until `main` is done; return its result.

        Raises:
            Stuck: no callback is left to run, virtual time has passed `time_max_s`, or the run exceeds `STEP_COUNT_MAX` steps.
        """
        self._is_running = True
        events._set_running_loop(self)
        try:
            task: asyncio.Task[T] = self.create_task(main)
            while not task.done():
                if self.abort is not None and not self._is_closing:
                    error, self.abort = self.abort, None
                    raise error
                if self._time > time_max_s:
                    raise Stuck(f"not done after {time_max_s} virtual seconds")
                self._step()
            return task.result()
        finally:
            self._is_running = False
            events._set_running_loop(None)

    def close(self) -> None:
        """Cancel all remaining tasks of all processes, so that no pending task is destroyed; later aborts are ignored."""
        if self.is_closed():
            return
        self._is_closing = True
        self.step_count = 0
        self.run(self._cancel_all_tasks(), time_max_s=float("inf"))
        self._report_unretrieved_errors()
        super().close()

    async def _cancel_all_tasks(self) -> None:
        this = asyncio.current_task()
        for _ in range(100):
            for process in self._processes:
                self.resume(process)  # a task that is not yet cancelled may have paused it
            await asyncio.sleep(0.001)  # time passes once no callback can run
            left = [task for task in self._tasks if not task.done() and task is not this]
            if not left:
                return
            for task in left:
                task.cancel()
        raise Stuck(f"tasks ignore their cancellation: {left}")

    def _enqueue(self, handle: asyncio.Handle, process: Process) -> None:
        if not process.ready and not process.is_paused:
            self._runnable.append(process)
        process.ready.append(handle)

    def _step(self) -> None:
        self.step_count += 1
        if self.step_count > STEP_COUNT_MAX:
            raise Stuck(f"not done after {STEP_COUNT_MAX} steps")
        runnable = self._runnable
        if not runnable:
            self._jump()
            return
        at = int(self._random() * len(runnable)) if len(runnable) > 1 else 0
        process = runnable[at]
        handle = process.ready.popleft()
        if not process.ready:
            runnable[at] = runnable[-1]
            runnable.pop()
        if not handle.cancelled():
            handle._run()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Stuck("nothing can run, and there is no timer")
        self._time = max(self._time, timers[0][0] + CLOCK_STEP_S)
        while timers and timers[0][0] <= self._time:
            _, _, handle, process = heapq.heappop(timers)
            if not handle.cancelled():
                self._enqueue(handle, process)


def virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Decorate an `async` test to run on its own loop in virtual time; unhandled task errors fail the test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def body() -> None:
            await test(*args, **kwargs)

        loop = SimulationLoop(random.Random(0))
        try:
            loop.run(body())
        finally:
            loop.close()
        assert not loop.failures, loop.failures

    return run
