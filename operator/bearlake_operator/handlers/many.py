"""Work on many resources: some at once, and what is wrong with one keeps the others from nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bearlake_operator.errors import OperatorError, Unavailable

T = TypeVar("T")

COUNT_AT_ONCE = 16


async def tried(work: Awaitable[None]) -> list[str]:
    """What went wrong with the work."""
    try:
        await work
    except OperatorError as error:
        return [str(error)]
    return []


async def some_at_once(work: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Do the work for all items. One that is refused does not keep the others from theirs; silence does. Raises the first problem."""
    places, problems = asyncio.Semaphore(COUNT_AT_ONCE), list[OperatorError]()

    async def one(item: T) -> None:
        async with places:
            if any(isinstance(problem, Unavailable) for problem in problems):
                return
            try:
                await work(item)
            except OperatorError as problem:
                problems.append(problem)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
    if problems:
        raise problems[0]
