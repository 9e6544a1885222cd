"""Runs several coroutines at once and returns all results, or raises the first error."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results in order. If one fails, cancel and await the others, and raise its error unwrapped."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def run_both(left: Coroutine[Any, Any, S], right: Coroutine[Any, Any, T]) -> tuple[S, T]:
    """Run two coroutines with different result types, as `run_all` does."""
    try:
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(left), group.create_task(right)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return first.result(), second.result()
