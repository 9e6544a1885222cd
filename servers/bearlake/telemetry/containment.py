"""Callbacks and tasks of many subjects: the error of one subject stops only that subject (I11), and is never lost.

    for watcher in list(watchers):
        contained(log, "update a watcher", watcher.update, watcher.client.failed)

    task.add_done_callback(noticed(log, "save a group"))

An error that reaches this module is a bug. It is logged with its traceback and counted. `on_failed` ends the subject: a connection is
closed, a subscription is given up. `telemetry/fault_isolation.py` is the counterpart for rounds over many subjects.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from bearlake.errors import BearlakeError
from bearlake.telemetry import metrics


def contained(
    logger: logging.Logger,
    what: str,
    step: Callable[[], object],
    on_failed: Callable[[Exception], object] | None = None,
) -> None:
    """Run `step`. Its error is passed to `fault` and not raised."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 - boundary: one subject
        fault(logger, what, error, on_failed)


async def contained_wait(
    logger: logging.Logger,
    what: str,
    step: Awaitable[object],
    on_failed: Callable[[Exception], object] | None = None,
) -> None:
    """As `contained`, for a step that waits. Cancellation is raised."""
    try:
        await step
    except Exception as error:  # noqa: BLE001 - boundary: one subject
        fault(logger, what, error, on_failed)


def fault(
    logger: logging.Logger, what: str, error: Exception, on_failed: Callable[[Exception], object] | None = None
) -> None:
    """Log and count the error of `what` (a constant text, such as "save a group"), then call `on_failed`. Raises nothing."""
    metrics.CONTAINED_FAULTS.labels(what).inc()
    logger.error("a step failed, only its subject ends", exc_info=error, extra={"step": what})
    if on_failed is not None:
        contained(logger, "end a subject after a fault", lambda: on_failed(error))


def noticed(logger: logging.Logger, what: str, *expected: type[Exception]) -> Callable[["asyncio.Task[Any]"], None]:
    """Return a callback for a finished task: it reports every error but `BearlakeError` and those of the kinds `expected`.

    The task's waiters handle the expected errors. They count as retrieved, because all waiters may have been cancelled.
    """

    def done(task: "asyncio.Task[Any]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception) and not isinstance(error, (BearlakeError, *expected)):
            fault(logger, what, error)

    return done
