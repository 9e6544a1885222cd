"""How the C allocator treats large buffers, and how often Python looks for cycles; configured once at start.

By default glibc takes a buffer of 128 KiB or more from the kernel and returns it when it is freed. Each use then pays a page
fault per 4 KiB again (2.5 to 7.5 µs each, more than the copy). Higher thresholds keep such memory in the process. One or two
arenas keep threads from each holding freed memory of their own. Best effort: no effect on other systems and C libraries.

The write path makes about ten small objects per batch, none of them in a cycle. With CPython's thresholds the cycle collector ran every
few requests over all slices in the index: 7.2 us per batch instead of 4.1 (1,000 partitions), growing with the index.

Source: mallopt(3), glibc; gc.set_threshold, CPython.
"""

import ctypes
import gc
import sys
from dataclasses import dataclass, field

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MMAP_THRESHOLD_OLD_MAX = 32 * 1024 * 1024  # older glibc refuses more (HEAP_MAX_SIZE / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How the process's allocator keeps memory (Linux with glibc)."""

    mmap_threshold_bytes: int = 1 << 30
    """Size at which a freed buffer is returned to the kernel. A higher value is faster; a lower value holds less memory."""
    trim_threshold_bytes: int = 256 * 1024 * 1024
    """Free memory kept at the top of the heap. A higher value saves page faults under bursts; a lower value shrinks an idle server."""
    arena_count: int = field(default=2, metadata={"min": 1})
    """Allocator arenas that threads share. More arenas lower contention between threads; fewer arenas waste less memory."""
    collector_allocation_count: int = field(default=50_000, metadata={"min": 700})
    """New objects after which Python's collector searches the youngest generation for unreachable cycles. A higher value is faster; a lower
    value holds less garbage."""
    collector_full_factor: int = field(default=100, metadata={"min": 10})
    """Collections of the middle generation before a full collection."""

    def __post_init__(self) -> None:
        if max(self.mmap_threshold_bytes, self.trim_threshold_bytes) >= 1 << 31:
            raise ValueError("mmap_threshold_bytes and trim_threshold_bytes must be less than 2 GiB")


def tune_allocator(settings: MemorySettings) -> bool:
    """Apply the settings to this process; returns whether the C library accepted all of them."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # another C library
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    threshold = settings.mmap_threshold_bytes
    took = [
        mallopt(_M_MMAP_THRESHOLD, threshold) or mallopt(_M_MMAP_THRESHOLD, min(threshold, _MMAP_THRESHOLD_OLD_MAX)),
        mallopt(_M_TRIM_THRESHOLD, settings.trim_threshold_bytes),
        mallopt(_M_ARENA_MAX, settings.arena_count),
    ]
    return all(took)


def tune_collector(settings: MemorySettings) -> None:
    """Collect the garbage of the start-up, exempt the remaining objects from later collections, and apply the settings' thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(settings.collector_allocation_count, 20, settings.collector_full_factor)
