"""Measures how long a step takes, several times."""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from bearlake.metadata.inspection import Finding, ok, warning


async def measured(count: int, step: Callable[[int], Awaitable[object]]) -> list[float]:
    """Run `step(0)` to `step(count - 1)` one after the other; return their times (ms)."""
    times = []
    for index in range(count):
        start = time.perf_counter()
        await step(index)
        times.append((time.perf_counter() - start) * 1000)
    return times


def latency_finding(subject: str, times_ms: Sequence[float], limit_ms: float, advice: str) -> Finding:
    """Return a finding about times; a median above the limit is a warning with the advice."""
    median, largest = statistics.median(times_ms), max(times_ms)
    detail = f"{median:.1f} ms (median of {len(times_ms)}; largest {largest:.1f} ms)"
    figures = {"median_ms": round(median, 3), "largest_ms": round(largest, 3)}
    return ok(subject, detail, **figures) if median <= limit_ms else warning(subject, detail, advice, **figures)
