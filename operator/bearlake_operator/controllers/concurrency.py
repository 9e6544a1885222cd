"""Runs one task per resource with bounded concurrency, and collects errors. A failure on one resource does not block the others.

An error that is no `OperatorError` is a bug: it is logged with its traceback, and then treated as a failure of its resource.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bearlake_operator import metrics
from bearlake_operator.errors import OperatorError, Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

CONCURRENCY_MAX = 16


async def errors_of(task: Awaitable[None]) -> list[str]:
    """Await a task. Returns the message of its error, or an empty list."""
    try:
        await task
    except OperatorError as error:
        return [str(error)]
    except Exception as error:  # noqa: BLE001 - the boundary of a step
        return [str(bug_in("a step of a reconciliation", error))]
    return []


def bug_in(what: str, error: Exception) -> OperatorError:
    """Log a bug in `what` (a constant text) with its traceback, and count it; returns it as an error that a retry may end."""
    metrics.CONTAINED_FAULTS.labels(what).inc()
    log.error("a bug stops one resource only", exc_info=error, extra={"step": what})
    return Unavailable(f"internal error: {error!r}")


async def for_each(task: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Run the task for all items, `CONCURRENCY_MAX` at a time. Raises the first error after all have ended.

    An item that is refused (`Invalid`, `Conflict`), or meets a bug, does not stop the others. After `Unavailable`, no
    further task is started.
    """
    slots, errors, bugs = asyncio.Semaphore(CONCURRENCY_MAX), list[OperatorError](), list[OperatorError]()

    async def run(item: T) -> None:
        async with slots:
            if any(isinstance(error, Unavailable) for error in errors):
                return
            try:
                await task(item)
            except OperatorError as error:
                errors.append(error)
            except Exception as error:  # noqa: BLE001 - the boundary of one resource
                bugs.append(bug_in("a step for one resource", error))

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(run(item))
    for error in [*errors, *bugs]:
        raise error
