"""Runs a controller: when it is woken, again after a delay, and with exponential backoff after a failure.

An unexpected exception counts as a failure too: it is logged as an error, and does not stop the other controllers.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bearlake_operator import metrics
from bearlake_operator.errors import OperatorError

log = logging.getLogger(__name__)

COALESCE_S = 0.1
"""Pause after a wake-up: changes come in bursts."""
RETRY_FIRST_S = 1.0
RETRY_MAX_S = 30.0


class ReconcileLoop:
    """Calls `reconcile` repeatedly. `reconcile` returns the seconds after which it is called again if nothing wakes the loop."""

    def __init__(self, name: str, reconcile: Callable[[], Awaitable[float]]) -> None:
        self.name = name
        self._reconcile = reconcile
        self._wake = asyncio.Event()
        self.last_run_at = time.monotonic()
        """When `reconcile` was last started or ended; the liveness probe reads it."""
        self.requeue_after_s = 0.0
        """The delay until the next run if nothing wakes the loop."""

    def wake(self, kind: str, resource: Mapping[str, Any]) -> None:
        """Run soon because a resource has changed. A listener of `ResourceCache.on_change`."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        backoff_s, last_error = RETRY_FIRST_S, ""
        while True:
            self.last_run_at = time.monotonic()
            self._wake.clear()
            started = time.perf_counter()
            try:
                requeue_after_s = await self._reconcile()
            except OperatorError as error:
                if str(error) != last_error:
                    last_error = str(error)
                    log.warning("reconciliation failed; retrying", extra={"controller": self.name, "error": last_error})
                requeue_after_s, delay_min_s, backoff_s = self._failed(error, backoff_s)
            except Exception as error:  # the boundary of a reconciliation
                log.exception("reconciliation failed unexpectedly; retrying", extra={"controller": self.name})
                requeue_after_s, delay_min_s, backoff_s = self._failed(error, backoff_s)
            else:
                metrics.RECONCILES.labels(self.name, "done").inc()
                metrics.LAST_SUCCESS.labels(self.name).set_to_current_time()
                backoff_s, last_error, delay_min_s = RETRY_FIRST_S, "", 0.0
            metrics.RECONCILE_SECONDS.labels(self.name).observe(time.perf_counter() - started)
            self.last_run_at, self.requeue_after_s = time.monotonic(), requeue_after_s
            await self._wait(requeue_after_s, delay_min_s)

    def _failed(self, error: Exception, backoff_s: float) -> tuple[float, float, float]:
        """Count a failure. Returns the longest and the shortest delay until the next run, and the next backoff (s)."""
        metrics.RECONCILES.labels(self.name, type(error).__name__).inc()
        return backoff_s, RETRY_FIRST_S, min(backoff_s * 2, RETRY_MAX_S)

    async def _wait(self, delay_s: float, delay_min_s: float) -> None:
        """Wait for `delay_s`, or until woken but at least for `delay_min_s`."""
        await asyncio.sleep(delay_min_s)
        try:
            async with asyncio.timeout(delay_s - delay_min_s):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(COALESCE_S)
