"""Periodic jobs; each runs on whichever worker holds its lease.

The lease only saves work: every job is safe to run on two workers at once (for example, after a pause of one of them).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bearlake.errors import BearlakeError, Conflict, Fenced
from bearlake.metadata import Leases
from bearlake.metadata.model import ServerRef
from bearlake.telemetry import metrics
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)


async def run_with_lease(
    name: str,
    leases: Leases,
    server: ServerRef,
    job: Callable[[], Awaitable[None]],
    *,
    pause_ms: int,
    retry_pause_ms: int,
) -> None:
    """Run `job` repeatedly, with `pause_ms` between two rounds, whenever this server holds the lease.

    Retries a failed job after `retry_pause_ms`, also after a bug, so that the other jobs continue. Ends only by cancellation.
    """
    outage = Outage(log, "upkeep failed; retrying", "upkeep works again", job=name)
    while True:
        wait_ms = pause_ms
        try:
            if await _has_lease(f"compaction/{name}", leases, server):
                await job()
            else:
                wait_ms = max(pause_ms, retry_pause_ms)
            outage.over()
        except BearlakeError as error:
            wait_ms = retry_pause_ms
            metrics.SWEEP_ERRORS.labels(name, type(error).__name__).inc()
            outage.failed(error)
        except Exception as error:  # noqa: BLE001 - boundary: one job
            wait_ms = retry_pause_ms
            metrics.SWEEP_ERRORS.labels(name, type(error).__name__).inc()
            outage.fault(f"upkeep: {name}", error)
        await asyncio.sleep(wait_ms / 1000)


async def _has_lease(lease: str, leases: Leases, server: ServerRef) -> bool:
    """Return whether this server holds the lease. False also if this registration was fenced; the worker then stops itself."""
    try:
        await leases.acquire(lease, server)
    except (Conflict, Fenced):
        return False
    return True
