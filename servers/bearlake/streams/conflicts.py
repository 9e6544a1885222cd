"""Changes of what many processes change: read, decide, write if nothing has changed since the read, and otherwise begin again."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from bearlake.errors import Conflict, Overloaded

T = TypeVar("T")

ATTEMPTS_MAX = 10
"""Attempts of one change."""


async def repeated(what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `attempt`, which reads, decides and writes; repeat it after a `Conflict`.

    Raises `Overloaded`, which says that other processes change `what`, after `ATTEMPTS_MAX` conflicts, and what else `attempt` raises.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            return await attempt()
        except Conflict:
            continue
    raise Overloaded(f"other processes change {what} at the same time, retry")
