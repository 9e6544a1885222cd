"""Wall-clock time as an injected dependency.

Waits and timeouts use the event loop's own monotonic time (which the simulation replaces); only stamps that leave the
process (record timestamps, log lines) use a `Clock`. Leases, heartbeats and retention use the metadata store's time
instead, because hosts' clocks are never compared with each other.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of wall-clock time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z."""


class SystemClock:
    """The host's clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z, from the operating system."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves when told to; for tests and simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The time last set, in milliseconds since 1970-01-01T00:00:00Z."""
        return self._now_ms

    def advance(self, delta_ms: int) -> None:
        """Move the clock forward by `delta_ms` (milliseconds, >= 0)."""
        if delta_ms < 0:
            raise ValueError("a clock does not go back")
        self._now_ms += delta_ms
