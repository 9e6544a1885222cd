"""The owner of background tasks: no task is lost, and no task dies unnoticed.

A background task runs for the whole life of its owner. If one ends on its own, its owner is incomplete: it logs the task by name, cancels
all others, and its block raises `TaskDied`. An end is an error, a return, and also a cancellation that the owner did not ask for:
`asyncio.TaskGroup` takes a task that ended as cancelled for one that succeeded (cpython, `asyncio/taskgroups.py`, `_on_task_done`).
Owners nest: the owner around passes `TaskDied` on, up to the process, which stops.

A request to cancel the owner's task need not end the owner: a timeout or a task group of its block makes one and withdraws it. A task that
ends meanwhile is judged once the request is withdrawn, or the block ends.

An owner that ends waits for its tasks for `END_S` at most, and then ends the process: a task that hangs must not keep alive what is
incomplete.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

END_S = 60.0
"""Longest end (s) of an owner's tasks, or of a process's parts: longer than all time limits of their last steps, which are 30 s at most."""
POLL_S = 0.02
"""How often a task that has ended looks whether the block ends, while the owner's task has a request."""
EXIT_CODE = 1
"""Exit code of a process that `EndLimit` ends."""


class TaskDied(Exception):
    """A background task ended on its own: stop the process. `name` is the task's name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"background task {name!r} ended unexpectedly")
        self.name = name


class EndLimit:
    """Ends the process if an end that has begun is not over after `END_S`. Use it from the event loop's thread only."""

    def __init__(self, unended: Callable[[], Sequence[str]]) -> None:
        """`unended` returns the names of what has not ended, for the log."""
        self._unended = unended
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The end begins. Safe to repeat: the first time counts."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(END_S, self._end_process)

    def over(self) -> None:
        """Everything has ended. Safe without `begin`."""
        if self._timer is not None:
            self._timer.cancel()

    def _end_process(self) -> None:
        fields = {"unended": self._unended(), "wait_s": END_S}
        log.error("the end takes too long; ending the process at once", extra=fields)
        os._exit(EXIT_CODE)


class Tasks:
    """`async with Tasks() as tasks: tasks.own("heartbeats", …)`; all tasks are cancelled and awaited at the end of the block."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False
        """The block ends, or a task has died: all tasks are being cancelled."""
        self._limit = EndLimit(lambda: sorted(task.get_name() for task in self._tasks))
        self._owner: asyncio.Task[Any] | None = None
        self._old_request_count = 0
        """Requests to cancel the owner's task that are older than the block."""

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        self._old_request_count = _request_count(self._owner)
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._begin_end()
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            died = next((leaf for leaf in group.exceptions if isinstance(leaf, TaskDied)), None)
            if died is not None:
                raise died from died.__cause__
            if error not in group.exceptions:
                raise group.exceptions[0] from None
        finally:
            self._limit.over()

    def own(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` under this name; it is expected to run until the block cancels it."""
        self._begin(name, work, may_end=False)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run `work` under this name; it may return, and its starter may cancel it. If it ends otherwise, it has died."""
        return self._begin(name, work, may_end=True)

    async def run(self) -> NoReturn:
        """Wait until the block is cancelled or a task dies."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    def _begin(self, name: str, work: Coroutine[Any, Any, None], *, may_end: bool) -> "asyncio.Task[None]":
        task = self._group.create_task(self._watched(name, work, may_end=may_end), name=name)
        task.add_done_callback(lambda _: work.close())  # for a task that is cancelled before it ran
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watched(self, name: str, work: Coroutine[Any, Any, None], *, may_end: bool) -> None:
        try:
            await self._ended(name, work, may_end=may_end)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._begin_end()  # the group cancels the others
            raise

    async def _ended(self, name: str, work: Coroutine[Any, Any, None], *, may_end: bool) -> None:
        """Await the work; log an end that nobody asked for. Raises `TaskDied`."""
        try:
            await work
        except asyncio.CancelledError as error:
            if (may_end and _is_cancelled()) or await self._is_asked_to_end():
                raise
            log.exception("a background task ended as cancelled; stopping the process", extra={"task": name})
            raise TaskDied(name) from error
        except (TaskDied, KeyboardInterrupt, GeneratorExit):  # logged by an owner below; Ctrl-C; a closed coroutine
            raise
        except BaseException as error:  # boundary: also SystemExit and a library's panic; after any, the process stops
            if await self._is_asked_to_end():
                log.exception("a background task failed while it was being stopped", extra={"task": name})
                return
            log.exception("a background task failed; stopping the process", extra={"task": name})
            raise TaskDied(name) from error
        if not (may_end or await self._is_asked_to_end()):
            log.error("a background task returned; stopping the process", extra={"task": name})
            raise TaskDied(name)

    async def _is_asked_to_end(self) -> bool:
        """Return whether the block ends. A loop that is closed cancels all tasks at once: then the owner's task needs some turns."""
        while not self._is_ending and _request_count(self._owner) > self._old_request_count:
            with suppress(asyncio.CancelledError):  # the answer is still to come
                await asyncio.sleep(POLL_S)
        return self._is_ending

    def _begin_end(self) -> None:
        self._is_ending = True
        self._limit.begin()


async def without_stray_end(work: Awaitable[T]) -> T:
    """Await `work`. Raises `RuntimeError` if it ends as cancelled and nobody has cancelled this task: a bug like others."""
    try:
        return await work
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise RuntimeError("ended as cancelled, although nobody has cancelled it") from error


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the current task."""
    return _request_count(asyncio.current_task()) > 0


def _request_count(task: "asyncio.Task[Any] | None") -> int:
    return 0 if task is None else task.cancelling()
