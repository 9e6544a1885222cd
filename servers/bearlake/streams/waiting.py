"""How a fetch waits for records: its waiter is in the tail of each of its partitions, and commit log entries call it.

A fetch reads again only when its partitions have got the bytes that it lacks: otherwise each small commit would repeat the reads of all
fetches that wait for many bytes.
"""

import asyncio
from collections.abc import Callable

from bearlake.index.tail import PartitionTail, Waiter
from bearlake.streams.turns import AT_ONCE
from bearlake.telemetry import metrics


class Lack:
    """The waiter of one fetch."""

    __slots__ = ("_wake", "size_bytes")

    def __init__(self, size_bytes: int, wake: Callable[[], object]) -> None:
        """Calls `wake` once `size_bytes` have arrived, and whenever more arrive then."""
        self.size_bytes = size_bytes
        """The bytes that are lacking."""
        self._wake = wake

    def __call__(self, size_bytes: int) -> None:
        """As a `Waiter`."""
        self.size_bytes -= size_bytes
        if self.size_bytes <= 0:
            self._wake()


async def leave(tails: list[PartitionTail], waiter: Waiter) -> None:
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
