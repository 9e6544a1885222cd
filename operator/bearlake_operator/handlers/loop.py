"""The loop of a worker: work when woken, and again after a while; after a failure, wait longer and longer.

A failure that nobody has foreseen is one too: it is told as an error, and the other workers go on.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bearlake_operator import metrics
from bearlake_operator.errors import OperatorError

log = logging.getLogger(__name__)

GATHER_S = 0.1
"""Pause after being woken: news come in bunches."""
RETRY_FIRST_S = 1.0
RETRY_MAX_S = 30.0


class Loop:
    """Runs `work` again and again. `work` returns in how many seconds it wants to be run again at the latest."""

    def __init__(self, name: str, work: Callable[[], Awaitable[float]]) -> None:
        self.name = name
        self._work = work
        self._wake = asyncio.Event()
        self.last_turn = time.monotonic()
        """When the loop last turned: for the probe."""
        self.wait_s = 0.0
        """How long it rests now."""

    def told(self, kind: str, resource: Mapping[str, Any]) -> None:
        """A resource has changed (see `World.on_change`)."""
        self._wake.set()

    async def run(self) -> None:
        """Ends only by cancellation."""
        pause_s, complaint = RETRY_FIRST_S, ""
        while True:
            self.last_turn = time.monotonic()
            self._wake.clear()
            started = time.perf_counter()
            try:
                wait_s = await self._work()
            except OperatorError as error:
                if str(error) != complaint:
                    complaint = str(error)
                    log.warning("not done, trying again", extra={"worker": self.name, "error": complaint})
                wait_s, least_s, pause_s = self._failed(error, pause_s)
            except Exception as error:  # the boundary of a reconciliation
                log.exception("a worker has failed, trying again", extra={"worker": self.name})
                wait_s, least_s, pause_s = self._failed(error, pause_s)
            else:
                metrics.RECONCILES.labels(self.name, "done").inc()
                metrics.LAST_SUCCESS.labels(self.name).set_to_current_time()
                pause_s, complaint, least_s = RETRY_FIRST_S, "", 0.0
            metrics.RECONCILE_SECONDS.labels(self.name).observe(time.perf_counter() - started)
            self.last_turn, self.wait_s = time.monotonic(), wait_s
            await self._rest(wait_s, least_s)

    def _failed(self, error: Exception, pause_s: float) -> tuple[float, float, float]:
        """How long to wait at most and at least, and at most after the next failure (s)."""
        metrics.RECONCILES.labels(self.name, type(error).__name__).inc()
        return pause_s, RETRY_FIRST_S, min(pause_s * 2, RETRY_MAX_S)

    async def _rest(self, wait_s: float, least_s: float) -> None:
        """Until woken, or for `wait_s`; news do not shorten `least_s`."""
        await asyncio.sleep(least_s)
        try:
            async with asyncio.timeout(wait_s - least_s):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_S)
