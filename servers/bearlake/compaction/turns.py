"""Upkeep that one worker at a time does for all: a job runs every now and then while its lease can be had.

The lease saves work, it guards nothing: every job is safe when two workers do it at once (a paused one that goes on).
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


async def take_turns(
    name: str,
    leases: Leases,
    server: ServerRef,
    job: Callable[[], Awaitable[None]],
    *,
    pause_ms: int,
    retry_pause_ms: int,
) -> None:
    """Do `job` for ever, with `pause_ms` between two rounds, whenever this server has the lease of that name.

    A job that fails is tried again after `retry_pause_ms`. Ends only by cancellation.
    """
    outage = Outage(log, "upkeep failed, trying again", "upkeep works again", job=name)
    while True:
        wait_ms = pause_ms
        try:
            await leases.acquire(f"compaction/{name}", server)
            await job()
            outage.over()
        except (Conflict, Fenced):  # another's turn, or not ours any more: the worker stops by itself then
            wait_ms = max(pause_ms, retry_pause_ms)
            outage.over()
        except BearlakeError as error:
            wait_ms = retry_pause_ms
            metrics.SWEEP_ERRORS.labels(name, type(error).__name__).inc()
            outage.failed(error)
        await asyncio.sleep(wait_ms / 1000)
