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
            if await _has_turn(f"compaction/{name}", leases, server):
                await job()
            else:
                wait_ms = max(pause_ms, retry_pause_ms)
            outage.over()
        except BearlakeError as error:
            wait_ms = retry_pause_ms
            metrics.SWEEP_ERRORS.labels(name, type(error).__name__).inc()
            outage.failed(error)
        await asyncio.sleep(wait_ms / 1000)


async def _has_turn(lease: str, leases: Leases, server: ServerRef) -> bool:
    """False: another has it, or this registration was overtaken (the worker stops by itself then)."""
    try:
        await leases.acquire(lease, server)
    except (Conflict, Fenced):
        return False
    return True
