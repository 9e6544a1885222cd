"""Delays a changing value until it is stable.

The streams that a selector selects are part of the workers' settings, and a change of settings replaces the workers. Without a delay,
applying a thousand Streams would roll out their Compactor every second.
"""

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

DEBOUNCE_S = 10.0
"""Time for which a new value must stay the same before it takes effect."""


@dataclass(slots=True)
class _Entry(Generic[T]):
    effective: T
    latest: T
    changed_at: float


class Debouncer(Generic[T]):
    """Debounced values by key. The first value of a key takes effect at once."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry[T]] = {}

    def update(self, key: Hashable, latest: T) -> tuple[T, float]:
        """Returns the value in effect, and the seconds after which to call again (0 if it is `latest`)."""
        now = time.monotonic()
        entry = self._entries.setdefault(key, _Entry(latest, latest, now))
        if entry.latest != latest:
            entry.latest, entry.changed_at = latest, now
        remaining_s = DEBOUNCE_S - (now - entry.changed_at)
        if entry.effective == latest or remaining_s <= 0:
            entry.effective = latest
            return latest, 0.0
        return entry.effective, remaining_s

    def retain(self, keys: set[Hashable]) -> None:
        """Forget all other keys."""
        self._entries = {key: entry for key, entry in self._entries.items() if key in keys}
