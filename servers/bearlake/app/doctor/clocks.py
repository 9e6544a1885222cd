"""Compares the clocks that were seen during an examination with this machine's.

Retention follows the metadata store's time, and S3 refuses requests of a clock that is 15 minutes wrong. A comparison is only as precise as
the answer took: half of it is subtracted, and the rest counts as uncertainty.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bearlake.metadata.inspection import Finding, failure, ok, skipped, warning

DIFFERENCE_WARN_MS = 2_000
DIFFERENCE_FAIL_MS = 300_000
_ADVICE = "run a time service (chrony, systemd-timesyncd) on both machines"


@dataclass(frozen=True, slots=True)
class _Seen:
    whose: str
    difference_ms: float
    uncertainty_ms: float


class Clocks:
    """The clocks that were seen."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []

    def add(self, whose: str, their_ms: float, start_ms: float, end_ms: float, precision_ms: float = 1) -> None:
        """Add a clock that showed `their_ms` between two times of this machine's clock (ms since 1970)."""
        middle = (start_ms + end_ms) / 2
        self._seen.append(_Seen(whose, their_ms - middle, (end_ms - start_ms) / 2 + precision_ms))

    def findings(self) -> Sequence[Finding]:
        """Return one finding per clock."""
        if not self._seen:
            return [skipped("clocks", "all stores use this machine's clock, and no server answered")]
        return [_finding(seen) for seen in self._seen]


def _finding(seen: _Seen) -> Finding:
    certain_ms = max(0.0, abs(seen.difference_ms) - seen.uncertainty_ms)
    precision = f"± {seen.uncertainty_ms / 1000:.1f} s"
    detail = (
        f"{seen.difference_ms / 1000:+.1f} s from this machine's clock, {precision}"
        if certain_ms
        else f"agrees with this machine's clock, {precision}"
    )
    figures = {"difference_ms": round(seen.difference_ms, 1), "uncertainty_ms": round(seen.uncertainty_ms, 1)}
    if certain_ms >= DIFFERENCE_FAIL_MS:
        return failure(
            seen.whose, detail, f"{_ADVICE}; object stores refuse requests of clocks that are far off", **figures
        )
    if certain_ms >= DIFFERENCE_WARN_MS:
        return warning(seen.whose, detail, f"{_ADVICE}; retention is wrong by as much as the store's clock", **figures)
    return ok(seen.whose, detail, **figures)


def now_ms() -> float:
    """Return this machine's time (ms since 1970)."""
    return time.time_ns() / 1e6
