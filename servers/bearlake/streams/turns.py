"""Walks over many names, in turns of the event loop, so that a list does not hold up other clients.

    async for part in in_turns(catalog.names()):
        found += [name for name in part if streams.sees(who, Operation.DESCRIBE, name)]

A list is what its items were when the walk began. The caller looks each item up again: it may be gone meanwhile.

`TurnBudget` bounds work that is counted in bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")


class Turns:
    """Counts the items of nested loops.

    for topic in request.topics:
        for partition in topic.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
    """

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def is_over(self, weight: int = 1) -> bool:
        """Count an item, or one that takes as long as `weight` items; returns whether other tasks should run before it."""
        self._count += weight
        if self._count < AT_ONCE:
            return False
        self._count = 0
        return True


AT_ONCE = 250
"""Items of one turn: 2 ms if each needs its rights and its name parsed, and 40 ms if thousands of rules apply to the caller."""


async def in_turns(items: Sequence[T], at_once: int = AT_ONCE) -> AsyncIterator[Sequence[T]]:
    """Yield the items in order, at most `at_once` at a time; other tasks run in between. The sequence must not change meanwhile."""
    for start in range(0, len(items), at_once):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + at_once]


class TurnBudget:
    """Bytes that may be worked on in each turn of the event loop, by all requests together. Use it from the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.left = bytes_max
        """What is left in this turn; negative if the last work took more."""

    def spend(self, count: int) -> None:
        """Note work on so many bytes; the next turn has a full budget again."""
        if self.left == self.bytes_max:
            asyncio.get_running_loop().call_soon(self._reset)
        self.left -= count

    def _reset(self) -> None:
        self.left = self.bytes_max
