"""Holds a choice until it stays the same: what a selector selects becomes workers' settings, and each change of these replaces the workers.

While a thousand Streams are being applied, their Compactor would otherwise be rolled out every second.
"""

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

SETTLE_S = 10.0
"""Time for which a new choice must have stayed the same."""


@dataclass(slots=True)
class _Choice(Generic[T]):
    taken: T
    wanted: T
    since: float


class Settling(Generic[T]):
    """Choices by key. What is there at first is taken at once."""

    def __init__(self) -> None:
        self._choices: dict[Hashable, _Choice[T]] = {}

    def take(self, key: Hashable, wanted: T) -> tuple[T, float]:
        """What counts now, and in how many seconds to ask again (0: it is what is wanted)."""
        now = time.monotonic()
        choice = self._choices.setdefault(key, _Choice(wanted, wanted, now))
        if choice.wanted != wanted:
            choice.wanted, choice.since = wanted, now
        left = SETTLE_S - (now - choice.since)
        if choice.taken == wanted or left <= 0:
            choice.taken = wanted
            return wanted, 0.0
        return choice.taken, left

    def keep(self, keys: set[Hashable]) -> None:
        """Forget all other keys."""
        self._choices = {key: choice for key, choice in self._choices.items() if key in keys}
