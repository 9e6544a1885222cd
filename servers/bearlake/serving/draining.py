"""Waiting during a drain, for conditions that become true after many callbacks."""

import asyncio
from collections.abc import Callable

POLL_S = 0.02


async def until(is_true: Callable[[], bool]) -> None:
    """Return when `is_true` returns True; it is called every 20 ms. The caller bounds the wait."""
    while not is_true():  # noqa: ASYNC110 - it becomes true at the end of many callbacks
        await asyncio.sleep(POLL_S)
