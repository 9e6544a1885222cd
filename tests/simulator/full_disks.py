"""Disks of the stores that fill up, and have room again (decisions 352 and 355).

A write to a full store has no effect, and the store says so. Reads go on.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

from bearlake.errors import OutOfRoom, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDiskSettings:
    """How often and for how long the disk of each store is full."""

    fill_rate: float = 0.0
    """Probability per write that the disk is full from now on."""
    full_s: float = 1.0
    """Mean time (s) until there is room again; exponentially distributed."""
    gap_rate: float = 0.0
    """Probability that a write to a full disk finds room, because something small was deleted."""


class FullDisks:
    """The disks of the object store and of the metadata store."""

    def __init__(self, settings: FullDiskSettings, randomness: random.Random, faults: Counter[str]) -> None:
        """`faults` counts what happens."""
        self._settings = settings
        self._random = randomness
        self._faults = faults
        self._full_until_s: dict[str, float] = {}

    def write_objects(self) -> None:
        """Raises `Unavailable` if the disk of the object store is full: puts have no error of their own for it."""
        if self._is_full("objects"):
            raise Unavailable("no space left for objects")

    def write_metadata(self) -> None:
        """Raises `OutOfRoom` if the disk of the metadata store is full."""
        if self._is_full("metadata"):
            raise OutOfRoom("no space left for metadata")

    def _is_full(self, store: str) -> bool:
        settings = self._settings
        if settings.fill_rate <= 0:
            return False
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._full_until_s.get(store, 0.0) and self._random.random() < settings.fill_rate:
            self._full_until_s[store] = now_s + self._random.expovariate(1.0) * settings.full_s
            self._faults[f"disk of {store} fills up"] += 1
        if now_s >= self._full_until_s.get(store, 0.0) or self._random.random() < settings.gap_rate:
            return False
        self._faults[f"no room for {store}"] += 1
        return True
