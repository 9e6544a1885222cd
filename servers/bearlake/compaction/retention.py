"""Retention: moves start offsets by `retention.ms` and `retention.bytes` (whole slices or segments), stream by stream, in pages.

Reference counts free the bytes later (`sweeper.py`). The table keeps its rows: its own retention is `table.retention_ms`.
Source: Apache Kafka documentation, "Topic Configs": retention.ms, retention.bytes, cleanup.policy.
"""

import logging

from bearlake.compaction.settings import SweepSettings
from bearlake.errors import Conflict, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import Stream
from bearlake.streams import configs as stream_configs
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation

log = logging.getLogger(__name__)


class Retention:
    """Applies retention; see the module docstring."""

    def __init__(self, metadata: Metadata, settings: SweepSettings) -> None:
        self._metadata = metadata
        self._settings = settings
        self._isolation = FaultIsolation(log, "retention", metadata.log.head)

    async def run_once(self) -> None:
        """Run one round over all streams. Raises `Unavailable`; any other error affects only its stream (I11)."""
        after = ""
        while True:
            page = await self._metadata.streams.list(after=after, limit=self._settings.page_count)
            for stream in page:
                async with self._isolation.of(stream.name):
                    await self._retain(stream)
            if len(page) < self._settings.page_count:
                self._isolation.end_round()
                return
            after = page[-1].name

    async def _retain(self, stream: Stream) -> None:
        before_ms, size_max = rules(stream)
        if before_ms is None and size_max is None:
            return
        size = self._settings.page_count
        for first in range(0, stream.partition_count, size):
            indexes = range(first, min(first + size, stream.partition_count))
            try:
                moved = await self._metadata.log.retain(stream, indexes, before_ms=before_ms, size_max=size_max)
            except (Conflict, NotFound):  # the configs may have changed: the next round decides again
                return
            metrics.SWEEP_TRIMMED.inc(len(moved))


def rules(stream: Stream) -> tuple[int | None, int | None]:
    """Return the age (ms) and the bytes per partition beyond which records may be trimmed; None: no limit."""
    configs = stream.configs
    if "delete" not in stream_configs.value(configs, "cleanup.policy"):
        return None, None
    age_ms = int(stream_configs.value(configs, "retention.ms"))
    size = int(stream_configs.value(configs, "retention.bytes"))
    return (None if age_ms < 0 else age_ms), (None if size < 0 else size)
