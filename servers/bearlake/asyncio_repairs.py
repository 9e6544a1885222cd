"""Repairs `asyncio.TaskGroup` in Python 3.11 and 3.12, and `asyncio.timeout` in 3.11.0 to 3.11.2 (Debian 12 has 3.11.2).

A group that fails while its task waits for the group's end asks the task to stop, and before 3.13 never withdraws this request. A timeout
around the group then takes its own expiry for an older cancellation of the task: `CancelledError` goes out instead of `TimeoutError`, and a
loop that survived the failed group ends without an error. The repair withdraws the request, as 3.13 does.

Before 3.11.3, a timeout raises `TimeoutError` only if its task has no other request at all. So a task that was cancelled, and cleans up,
skips the rest of its clean-up when a timeout expires. The repair counts only requests that are newer than the timeout, as 3.11.3 does.

Source: https://github.com/python/cpython/issues/102780 (timeouts), https://github.com/python/cpython/issues/116720 (groups).
"""

import asyncio
from types import TracebackType
from typing import Any


def repair_task_groups() -> None:
    """Repair the task groups of this process, those of libraries included. Call it once, on a Python older than 3.13."""
    leave = asyncio.TaskGroup.__aexit__

    async def leave_repaired(
        group: Any,  # a TaskGroup, whose state is private
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        was_requested = group._parent_cancel_requested  # then `leave` withdraws the request
        try:
            await leave(group, kind, error, traceback)
        finally:
            if group._parent_cancel_requested and not was_requested:
                group._parent_task.uncancel()

    asyncio.TaskGroup.__aexit__ = leave_repaired  # type: ignore[method-assign, assignment]


def repair_timeouts() -> None:
    """Repair the timeouts of this process, those of libraries included. Call it once, on a Python older than 3.11.3."""
    enter, leave = asyncio.Timeout.__aenter__, asyncio.Timeout.__aexit__

    async def enter_repaired(timeout: asyncio.Timeout) -> asyncio.Timeout:
        entered = await enter(timeout)
        timeout.bearlake_old_request_count = _request_count()  # type: ignore[attr-defined]
        return entered

    async def leave_repaired(
        timeout: asyncio.Timeout,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await leave(timeout, kind, error, traceback)
        old_request_count: int = timeout.bearlake_old_request_count  # type: ignore[attr-defined]
        if timeout.expired() and kind is asyncio.CancelledError and _request_count() <= old_request_count:
            raise TimeoutError from error

    asyncio.Timeout.__aenter__ = enter_repaired  # type: ignore[method-assign, assignment]
    asyncio.Timeout.__aexit__ = leave_repaired  # type: ignore[method-assign, assignment]


def _request_count() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
