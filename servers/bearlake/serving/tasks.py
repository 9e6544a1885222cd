"""The owner of a process's background tasks: no task is lost, and no task dies unnoticed.

A background task runs for the whole life of the process. If one ends on its own, by an error or by returning, the process is
incomplete: the owner logs the task by name, cancels all others, and its block raises `TaskDied`.
"""

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

log = logging.getLogger(__name__)


class TaskDied(Exception):
    """A background task ended on its own: stop the process. `name` is the task's name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"background task {name!r} ended unexpectedly")
        self.name = name


class Tasks:
    """`async with Tasks() as tasks: tasks.own("heartbeats", …)`; all tasks are cancelled and awaited at the end of the block."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            died = next((leaf for leaf in group.exceptions if isinstance(leaf, TaskDied)), None)
            raise died or group.exceptions[0] from None

    def own(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` under this name; it is expected to run until it is cancelled."""
        task = self._group.create_task(_watched(name, work), name=name)
        task.add_done_callback(lambda _: work.close())  # for a task that is cancelled before it ran
        self._tasks.append(task)


async def _watched(name: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # boundary: after any error the process stops
        log.exception("a background task failed; stopping the server", extra={"task": name})
        raise TaskDied(name) from error
    log.error("a background task returned; stopping the server", extra={"task": name})
    raise TaskDied(name)
