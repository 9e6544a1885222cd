"""Runs one task per resource with bounded concurrency, and collects errors. A failure on one resource does not block the others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bearlake_operator.errors import OperatorError, Unavailable

T = TypeVar("T")

CONCURRENCY_MAX = 16


async def errors_of(task: Awaitable[None]) -> list[str]:
    """Await a task. Returns the message of its `OperatorError`, or an empty list."""
    try:
        await task
    except OperatorError as error:
        return [str(error)]
    return []


async def for_each(task: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Run the task for all items, `CONCURRENCY_MAX` at a time. Raises the first error after all have ended.

    An item that is refused (`Invalid`, `Conflict`) does not stop the others. After `Unavailable`, no further task is started.
    """
    slots, errors = asyncio.Semaphore(CONCURRENCY_MAX), list[OperatorError]()

    async def run(item: T) -> None:
        async with slots:
            if any(isinstance(error, Unavailable) for error in errors):
                return
            try:
                await task(item)
            except OperatorError as error:
                errors.append(error)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(run(item))
    if errors:
        raise errors[0]
