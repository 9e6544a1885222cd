"""Repairs `asyncio.timeout` in Python 3.11.0 to 3.11.2 (Debian 12 has 3.11.2); newer versions stay as they are.

A timeout of these versions raises `TimeoutError` only if its task has no other request to cancel it, however old. A task keeps such
requests for two reasons:

- It was cancelled, and cleans up.
- An `asyncio.TaskGroup` of its own failed while it waited for the group's end. Before 3.13, the group never withdraws its request.

In such a task a timeout that expires lets `CancelledError` out, so the rest of the clean-up is skipped, and a loop that survived the
failed group ends without an error. The repair counts only requests that are newer than the timeout, as 3.11.3 does.

Source: https://github.com/python/cpython/issues/102780 (timeouts), https://github.com/python/cpython/issues/116720 (groups).
"""

import asyncio
from types import TracebackType


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
