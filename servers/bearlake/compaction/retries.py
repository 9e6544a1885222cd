"""Repeats calls to a store that does not answer: pauses double, with jitter, until a deadline."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bearlake.errors import Overloaded, Unavailable
from bearlake.telemetry import metrics

T = TypeVar("T")


class Retries:
    """Repeats calls that are safe to repeat. `randomness` is injected, so that a seed can be replayed."""

    def __init__(self, randomness: random.Random, *, pause_ms: int, pause_max_ms: int) -> None:
        self._random = randomness
        self._pause_ms = pause_ms
        self._pause_max_ms = pause_max_ms

    def pause_s(self, attempt: int, first_ms: int | None = None) -> float:
        """Return the pause after attempt number `attempt` (0 is the first): doubling, half of it random."""
        longest_ms: int = min(self._pause_max_ms, (first_ms or self._pause_ms) * 2 ** min(attempt, 30))
        return longest_ms * (0.5 + 0.5 * self._random.random()) / 1000

    async def call(self, call: Callable[[], Awaitable[T]], *, until_s: float) -> T:
        """Return the result of `call`; repeat it while it raises `Unavailable` or `Overloaded`, until the loop's time `until_s`.

        Raises:
            Unavailable: no answer in time; the effect may or may not have taken place.
            Overloaded: the store was overloaded the whole time.
        """
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            try:
                return await call()
            except (Unavailable, Overloaded) as error:
                metrics.COMPACTION_RETRIES.labels(type(error).__name__).inc()
                pause_s = self.pause_s(attempt)
                if loop.time() + pause_s > until_s:
                    raise
            await asyncio.sleep(pause_s)
            attempt += 1
