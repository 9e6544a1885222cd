"""Pooled receive buffers: memory that is already resident.

A first touch of fresh anonymous memory costs 2.5-7.5 us per 4 KiB, which is slower than the network; so sockets are read into recycled
slabs, and batches stay there, as views, until they are copied into a WAL object. A slab goes back to the pool when its last
holder has released it.

Slabs come in three sizes: a quiet connection owns a small one, a busy one grows into larger ones. A frame larger than the largest
size gets a slab of its own that is not kept.
"""

import mmap
from dataclasses import dataclass

SIZES = (64 * 1024, 1024 * 1024, 4 * 1024 * 1024)


class Slab:
    """One receive buffer with a count of holders; starts with one holder."""

    __slots__ = ("_pool", "holders", "size", "view")

    def __init__(self, pool: "SlabPool", size: int) -> None:
        self._pool = pool
        self.size = size
        self.holders = 1
        self.view = memoryview(mmap.mmap(-1, size))

    def acquire(self) -> None:
        """One more holder."""
        self.holders += 1

    def release(self) -> None:
        """One holder less; the last one gives the slab back."""
        self.holders -= 1
        if self.holders == 0:
            self._pool.give_back(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabSettings:
    """Bounds of the pool."""

    idle_bytes_max: int = 64 * 1024 * 1024
    """Bytes of unused slabs that are kept for reuse."""


class SlabPool:
    """Slabs by size. Used from the event loop's thread only."""

    def __init__(self, settings: SlabSettings) -> None:
        self._settings = settings
        self._free: dict[int, list[Slab]] = {size: [] for size in SIZES}
        self.used_bytes = 0
        """Bytes of slabs that somebody holds."""
        self.idle_bytes = 0
        """Bytes of slabs that wait for reuse."""

    def take(self, size_min: int) -> Slab:
        """A slab of at least `size_min` bytes with one holder."""
        for size in SIZES:
            if size >= size_min:
                free = self._free[size]
                self.used_bytes += size
                if not free:
                    return Slab(self, size)
                self.idle_bytes -= size
                slab = free.pop()
                slab.holders = 1
                return slab
        self.used_bytes += size_min
        return Slab(self, size_min)

    def give_back(self, slab: Slab) -> None:
        """Called by a slab whose last holder has gone."""
        self.used_bytes -= slab.size
        free = self._free.get(slab.size)
        if free is not None and self.idle_bytes + slab.size <= self._settings.idle_bytes_max:
            self.idle_bytes += slab.size
            free.append(slab)
