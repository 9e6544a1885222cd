"""Upkeep of tables and of quarantined tasks: slow rounds over all streams, including deleted ones.

Upkeep creates a stream's table (unless its first task does so earlier), expires old snapshots, removes rows older than
`table.retention_ms`, and drops the table with its stream if `table.on_delete` says so; `sweeper.py` deletes the bytes. The kept table of a
deleted stream also gets upkeep, because commits in progress at the deletion leave metadata files in its folder. Snapshots that a backup
needs stay (`holds.py`).
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bearlake.clock import Clock
from bearlake.compaction.all_streams import all_streams
from bearlake.compaction.ensuring import StreamDeleted, ensure_table
from bearlake.compaction.holds import Held
from bearlake.compaction.settings import SweepSettings
from bearlake.errors import NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import TaskState
from bearlake.metadata.model import Stream
from bearlake.streams import configs as stream_configs
from bearlake.streams.current_rules import current_stream
from bearlake.table import Tables
from bearlake.table.settings import TableSettings
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation

log = logging.getLogger(__name__)
QUIET_ROUND_COUNT = 3
"""Rounds without work after which a deleted stream's table is no longer checked in every round."""
DELETED_PER_ROUND_COUNT = 20
"""Such tables checked per round, in order of stream number: a catalog may execute a late commit or table creation at any time."""


async def no_holds() -> Held:
    """The holds of a store without backups."""
    return Held()


class TableUpkeep:
    """Maintains the tables; see the module docstring."""

    def __init__(
        self,
        metadata: Metadata,
        tables: Tables,
        settings: SweepSettings,
        table_settings: TableSettings,
        clock: Clock,
        look: Callable[[], Awaitable[Held]] = no_holds,
    ) -> None:
        """`clock` is compared with the timestamps of rows; `look` returns the valid holds."""
        self._look = look
        self._metadata = metadata
        self._tables = tables
        self._settings = settings
        self._table_settings = table_settings
        self._clock = clock
        self._quiet_counts: dict[int, int] = {}
        self._last_checked = self._checks_left = 0
        self._isolation = FaultIsolation(log, "tables", metadata.log.head)

    async def run_once(self) -> None:
        """Run one round. Raises `Unavailable` of the metadata store; a table that cannot be read or written stops only its stream (I11)."""
        self._checks_left = DELETED_PER_ROUND_COUNT
        async for stream in all_streams(self._metadata.streams, self._settings.page_count):
            async with self._isolation.of(stream.name):
                await self._keep_up(stream)
            async with self._isolation.of(f"current table of {stream.name}"):
                await self._keep_up_current(stream)
        if self._checks_left:
            self._last_checked = 0
        self._isolation.end_round()

    async def _keep_up(self, stream: Stream) -> None:
        rules = stream_configs.table_rules(stream.name, stream.configs)
        if stream.is_deleted:
            await self._keep_up_deleted(stream, is_dropped=rules.is_dropped_on_delete)
            return
        try:
            if await ensure_table(stream, self._metadata.streams, self._tables) is None:
                return
        except StreamDeleted:  # deleted since the page was read
            return
        if rules.retention_ms is not None:
            await self._tables.delete_before(stream, self._clock.now_ms() - rules.retention_ms)
        await self._expire(stream)

    async def _keep_up_current(self, stream: Stream) -> None:
        """Maintain the stream's current table, or drop it if the stream should have none. Rounds create it (`current_tables.py`)."""
        derived = current_stream(stream)
        if not stream_configs.table_rules(derived.name, derived.configs).is_enabled:
            await self._drop_if_found(derived)
        elif stream.is_deleted:
            rules = stream_configs.table_rules(stream.name, stream.configs)
            await self._keep_up_deleted(derived, is_dropped=rules.is_dropped_on_delete)
        else:
            self._quiet_counts.pop(derived.number, None)
            await self._expire(derived)

    async def _drop_if_found(self, derived: Stream) -> None:
        """Drop a current table that should not exist. Looks for it only a few times: nearly all streams have never had one."""
        quiet_count = self._quiet_counts.get(derived.number, 0)
        if quiet_count >= QUIET_ROUND_COUNT:
            return
        if await self._tables.state(derived) is None:
            self._quiet_counts[derived.number] = quiet_count + 1
        else:
            await self._tables.drop(derived)

    async def _expire(self, stream: Stream) -> int:
        """Expire snapshots that no backup needs, and delete metadata files; return how many files."""
        needed = (await self._look()).snapshots(stream.id)
        if needed is None:
            return 0  # a backup is reading the tables
        expired = await self._tables.expire(
            stream,
            keep_ms=self._table_settings.snapshot_keep_ms,
            keep_count_min=self._table_settings.snapshot_count_min,
            needed=needed,
        )
        metrics.SWEEP_SNAPSHOTS.inc(expired)
        return expired

    async def _keep_up_deleted(self, stream: Stream, *, is_dropped: bool) -> None:
        """Drop or maintain a deleted stream's table. Runs more than once, because requests of a slow worker may execute late."""
        quiet_count = self._quiet_counts.get(stream.number, 0)
        if quiet_count >= QUIET_ROUND_COUNT and not self._is_next(stream.number):
            return
        is_quiet = await self._drop(stream) if is_dropped else await self._expire(stream) == 0
        self._quiet_counts[stream.number] = quiet_count + 1 if is_quiet else 0

    async def _drop(self, stream: Stream) -> bool:
        """Drop a stream's table; return whether it was already gone."""
        is_gone = await self._tables.state(stream) is None
        await self._tables.drop(stream)  # also if it is gone: excludes late creations
        return is_gone

    def _is_next(self, number: int) -> bool:
        """Return whether this round checks the deleted stream; rounds continue in order of stream number."""
        if number <= self._last_checked or self._checks_left == 0:
            return False
        self._last_checked = number
        self._checks_left -= 1
        return True


class QuarantineUpkeep:
    """Retries quarantined tasks from time to time."""

    def __init__(self, metadata: Metadata, settings: SweepSettings) -> None:
        self._metadata = metadata
        self._settings = settings
        self._isolation = FaultIsolation(log, "quarantine", metadata.log.head)

    async def run_once(self) -> None:
        """Run one round. Raises `Unavailable`."""
        after = open_count = quarantined_count = 0
        while page := await self._metadata.tasks.list(after=after, limit=self._settings.page_count):
            after = page[-1].id
            for task in page:
                is_quarantined = task.state is TaskState.QUARANTINED
                quarantined_count += is_quarantined
                open_count += not is_quarantined
                if is_quarantined and task.wait_ms == 0:
                    async with self._isolation.of(f"task {task.id}"):
                        with suppress(NotFound):  # done in the meantime
                            await self._metadata.tasks.retry(task.id)
        self._isolation.end_round()
        metrics.COMPACTION_OPEN_TASKS.set(open_count)
        metrics.COMPACTION_QUARANTINED.set(quarantined_count)
