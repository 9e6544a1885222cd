"""Upkeep of the commit log: rolled up into per-partition index pages and truncated, a bounded round at a time.

Every server runs it; the store lets one work and the others return. Without it the log, and with it every start of a server,
would grow for ever.
"""

import asyncio
import logging
from dataclasses import dataclass

from bearlake.errors import BearlakeError
from bearlake.metadata import CommitLog
from bearlake.telemetry import metrics
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    """How often the log is rolled up, and how much of it stays."""

    pause_ms: int = 2_000
    """Pause (ms) between rounds that found nothing more to do."""
    entry_count_min: int = 2_000
    """Newest entries that always stay, for followers that are a little behind. Those further behind start over at the head."""


class Upkeep:
    """Runs `CommitLog.maintain`; owned by the service's task group."""

    def __init__(self, commit_log: CommitLog, settings: UpkeepSettings) -> None:
        self._log = commit_log
        self._settings = settings

    async def run(self) -> None:
        """Work for ever; ends only by cancellation. A store that does not answer is asked again in the next round."""
        outage = Outage(log, "upkeep of the commit log failed, trying again", "upkeep of the commit log works again")
        while True:
            await asyncio.sleep(self._settings.pause_ms / 1000)
            try:
                while count := await self._log.maintain(entry_count_min=self._settings.entry_count_min):
                    metrics.MAINTENANCE_ENTRIES.inc(count)
                outage.over()
            except BearlakeError as error:
                outage.failed(error)
