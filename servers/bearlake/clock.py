"""Wall-clock time as an injected dependency.

Waits and timeouts use the event loop's own monotonic time (which the simulation replaces); only stamps that leave the
process (record timestamps, log lines) use a `Clock`. Retention uses the metadata store's time instead, because hosts' clocks
are never compared with each other. Leases and heartbeats use no time at all (`metadata/liveness.py`).
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
    """A clock that moves only when a caller advances it; for tests and simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The time last set, in milliseconds since 1970-01-01T00:00:00Z."""
        return self._now_ms

    def advance(self, delta_ms: int) -> None:
        """Move the clock forward by `delta_ms` (milliseconds, >= 0)."""
        if delta_ms < 0:
            raise ValueError("a clock cannot be set back")
        self._now_ms += delta_ms

    def step(self, delta_ms: int) -> None:
        """Set the clock forward, or back if `delta_ms` (milliseconds) is negative, as an operator or NTP does."""
        self._now_ms += delta_ms


def boot_time_s() -> float:
    """Seconds on a clock that never steps and continues while the machine is suspended, which the event loop's clock does not.

    Source: clock_gettime(2), CLOCK_BOOTTIME. Where there is none: the monotonic clock.
    """
    return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
