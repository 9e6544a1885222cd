"""Values from very many rows, in turns of the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import asyncpg

K = TypeVar("K")
V = TypeVar("V")

AT_ONCE = 2_000
"""Rows of one turn: about 2 ms."""


async def listed(rows: Sequence[asyncpg.Record], item: Callable[[asyncpg.Record], V]) -> list[V]:
    """Return what `item` makes of the rows, in their order; other tasks run in between."""
    found: list[V] = []
    for start in range(0, len(rows), AT_ONCE):
        if start:
            await asyncio.sleep(0)
        found += map(item, rows[start : start + AT_ONCE])
    return found


async def keyed(rows: Sequence[asyncpg.Record], item: Callable[[asyncpg.Record], tuple[K, V]]) -> dict[K, V]:
    """Return what `item` makes of the rows, in their order; other tasks run in between."""
    found: dict[K, V] = {}
    for start in range(0, len(rows), AT_ONCE):
        if start:
            await asyncio.sleep(0)
        found.update(map(item, rows[start : start + AT_ONCE]))
    return found
