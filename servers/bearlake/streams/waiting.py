"""How a fetch waits for records: its waiter is in the tail of each of its partitions, and commit log entries call it."""

import asyncio
from collections.abc import Callable

from bearlake.index.tail import PartitionTail
from bearlake.streams.turns import AT_ONCE
from bearlake.telemetry import metrics


async def leave(tails: list[PartitionTail], waiter: Callable[[], None]) -> None:
    """Take the waiter from the tails, and the tails from the list, in turns of the event loop."""
    while tails:
        for tail in tails[-AT_ONCE:]:
            tail.waiters.pop(waiter, None)
        del tails[-AT_ONCE:]
        if tails:
            await asyncio.sleep(0)


async def is_woken(wake: asyncio.Event, seconds: float) -> bool:
    """Wait for records; returns whether there are any."""
    start = asyncio.get_running_loop().time()
    metrics.FETCH_WAITING.value += 1
    try:
        async with asyncio.timeout(seconds):
            return await wake.wait()
    except TimeoutError:
        return False
    finally:
        metrics.FETCH_WAITING.value -= 1
        metrics.FETCH_WAIT_SECONDS.observe(asyncio.get_running_loop().time() - start)
