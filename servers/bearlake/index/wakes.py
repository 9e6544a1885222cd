"""Calls the waiters of partitions, in turns of the event loop.

Very many fetches may wait in each of very many partitions. One commit, or a reset of the index, then has to call all of them.
"""

import asyncio
from collections import deque
from typing import Protocol

CALLS_AT_ONCE = 20_000
"""Calls of one turn: 2 to 4 ms."""


class Woken(Protocol):
    """A partition's tail: `index.tail.PartitionTail`."""

    @property
    def waiter_count(self) -> int:
        """Waiters."""

    def wake(self, size_bytes: int) -> None:
        """Call every waiter once."""


class Wakes:
    """Wakes tails in order, at once while they have few waiters in total. Use it from the event loop's thread only."""

    def __init__(self) -> None:
        self._later: deque[tuple[Woken, int]] = deque()
        self._left = CALLS_AT_ONCE

    def begin(self) -> None:
        """A commit log entry begins: its first calls are made at once, unless those of earlier entries still wait for their turn."""
        self._left = CALLS_AT_ONCE

    def add(self, tail: Woken, size_bytes: int) -> None:
        """Tell the tail's waiters that the partition got `size_bytes`, now or in a later turn.

        A waiter that is added in between may be told of bytes that it has read. It then reads once more than needed.
        """
        if self._later or self._left <= 0:
            if not self._later:
                asyncio.get_running_loop().call_soon(self._continue)
            self._later.append((tail, size_bytes))
            return
        self._left -= tail.waiter_count
        tail.wake(size_bytes)

    def _continue(self) -> None:
        left = CALLS_AT_ONCE
        while self._later and left > 0:
            tail, size_bytes = self._later.popleft()
            left -= tail.waiter_count
            tail.wake(size_bytes)
        if self._later:
            asyncio.get_running_loop().call_soon(self._continue)
