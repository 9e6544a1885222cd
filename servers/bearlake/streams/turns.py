"""Walks over many names, in turns of the event loop, so that a list does not hold up other clients.

    async for part in in_turns(catalog.names()):
        found += [name for name in part if streams.sees(who, Operation.DESCRIBE, name)]

A list is what its items were when the walk began. The caller looks each item up again: it may be gone meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 250
"""Items of one turn: 2 ms if each needs its rights and its name parsed, and 40 ms if thousands of rules apply to the caller."""


async def in_turns(items: Sequence[T], at_once: int = AT_ONCE) -> AsyncIterator[Sequence[T]]:
    """Yield the items in order, at most `at_once` at a time; other tasks run in between. The sequence must not change meanwhile."""
    for start in range(0, len(items), at_once):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + at_once]
