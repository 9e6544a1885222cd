"""A complete compaction worker: planner, worker, sweeper, retention and table upkeep. Its process owns it.

Every worker runs all parts; leases decide which worker plans and sweeps. The process registers the worker (`serving/membership.py`) and
sends its heartbeats: claims and leases live as long as that registration.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from bearlake.clock import Clock, SystemClock
from bearlake.compaction.current_tables import CurrentTables
from bearlake.compaction.leased_jobs import run_with_lease
from bearlake.compaction.planner import Planner
from bearlake.compaction.retention import Retention
from bearlake.compaction.runner import Runner
from bearlake.compaction.settings import CompactionSettings
from bearlake.compaction.sweeper import Sweeper
from bearlake.compaction.upkeep import QuarantineUpkeep, TableUpkeep
from bearlake.compaction.worker import Worker
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import StreamBacklog
from bearlake.metadata.model import ServerRef, Stream
from bearlake.objects import ObjectStore
from bearlake.owned_tasks import Tasks
from bearlake.streams.schemas.compiled import SchemaCompiler
from bearlake.table import Tables
from bearlake.table.current_model import CurrentStore
from bearlake.table.settings import TableSettings
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation

log = logging.getLogger(__name__)

MEASURE_MS = 10_000
"""Time (ms) between two measurements of backlogs and offsets for the metrics."""
MEASURED_STREAM_COUNT_MAX = 200
MEASURED_PARTITION_COUNT_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorStatus:
    """What one worker is doing. `is_planning`: it holds the planner's lease."""

    is_planning: bool
    is_draining: bool
    held_task_count: int


class Compactor:
    """One compaction worker. Use from the event loop's thread only. The caller owns the stores, tables, runner and compiler."""

    def __init__(
        self,
        metadata: Metadata,
        store: ObjectStore,
        tables: Tables,
        runner: Runner,
        server: ServerRef,
        settings: CompactionSettings | None = None,
        *,
        table_settings: TableSettings | None = None,
        clock: Clock | None = None,
        random_source: random.Random | None = None,
        on_fenced: Callable[[], None] = lambda: None,
        compiler: SchemaCompiler | None = None,
        current: CurrentStore | None = None,
    ) -> None:
        """`server` is the registration that fences this process's writes; `on_fenced` is called when a newer registration replaces it.

        Without a `compiler`, values of Protobuf schemas cannot become columns. Without a store of `current` tables, they stay as they are.
        """
        settings = settings or CompactionSettings()
        clock = clock or SystemClock()
        self.settings = settings
        self._metadata = metadata
        self._server = server
        self._is_draining = False
        randomness = random_source or random.SystemRandom()
        self.worker = Worker(
            metadata,
            store,
            tables,
            runner,
            server,
            settings,
            clock=clock,
            random_source=randomness,
            on_fenced=on_fenced,
            compiler=compiler,
        )
        self.planner = Planner(
            metadata, server, settings, on_offered=self.worker.hint, on_fenced=on_fenced, clock=clock
        )
        self._current = None
        if current is not None and settings.current.is_enabled:
            self._current = CurrentTables(
                metadata, tables, current, runner, server, settings, clock=clock, random_source=randomness
            )
        self._sweeper = Sweeper(metadata, store, tables, settings.sweep, clock)
        self._retention = Retention(metadata, settings.sweep)
        self._table_upkeep = TableUpkeep(
            metadata, tables, settings.sweep, table_settings or TableSettings(), clock, self._sweeper.look
        )
        self._quarantine = QuarantineUpkeep(metadata, settings.sweep)
        self._isolation = FaultIsolation(log, "measure", metadata.log.head)
        metrics.COMPACTION_PLANNING.set_function(lambda: float(self.planner.is_planning))

    async def run(self) -> None:
        """Run all parts. Ends only by cancellation. The process owns this task and stops when the task fails."""
        sweep = self.settings.sweep
        jobs = [
            ("sweep wal", self._sweeper.sweep_wal, sweep.pause_ms),
            ("sweep files", self._sweeper.sweep_files, sweep.file_pause_ms),
            ("sweep orphans", self._sweeper.sweep_orphans, sweep.orphan_pause_ms),
            ("retention", self._retention.run_once, sweep.retention_pause_ms),
            ("tables", self._table_upkeep.run_once, sweep.table_pause_ms),
            ("quarantine", self._quarantine.run_once, min(sweep.quarantine_retry_ms, MEASURE_MS)),
            ("measure", self.measure, MEASURE_MS),
        ]
        async with Tasks() as tasks:
            tasks.own("plan compaction", self.planner.run())
            tasks.own("work on tasks", self.worker.run())
            if self._current is not None:
                tasks.own("current tables", self._current.run())
            for name, job, pause_ms in jobs:
                leased_job = run_with_lease(
                    name.replace(" ", "-"),
                    self._metadata.leases,
                    self._server,
                    job,
                    pause_ms=pause_ms,
                    retry_pause_ms=sweep.retry_pause_ms,
                )
                tasks.own(name, leased_job)
            await tasks.run()

    async def drain(self) -> None:
        """Claim no more tasks; return once all claimed tasks are done or given back."""
        self._is_draining = True
        await self.worker.drain()
        if self._current is not None:
            await self._current.drain()

    async def close(self) -> None:
        """Give back the held tasks, after `run` was cancelled."""
        await self.worker.close()

    def status(self) -> CompactorStatus:
        """Return the worker's current status."""
        return CompactorStatus(
            is_planning=self.planner.is_planning,
            is_draining=self._is_draining,
            held_task_count=self.worker.held_count,
        )

    # -- metrics -------------------------------------------------------------------------------------------------

    async def measure(self) -> None:
        """Measure the backlogs, and the offsets of the streams with the largest backlogs. Raises `Unavailable`."""
        backlogs = await self._metadata.tasks.backlog()
        metrics.COMPACTION_BACKLOG_BYTES.set(sum(backlog.size_bytes for backlog in backlogs))
        metrics.COMPACTION_BACKLOG_RECORDS.set(sum(backlog.record_count for backlog in backlogs))
        metrics.COMPACTION_BACKLOG_SECONDS.set(max((backlog.age_ms for backlog in backlogs), default=0) / 1000)
        largest = sorted(backlogs, key=lambda backlog: -backlog.size_bytes)[:MEASURED_STREAM_COUNT_MAX]
        sizes = {backlog.stream_number: backlog for backlog in largest}
        numbers = {*sizes, *self.worker.reports.recent()}
        for stream in await self._metadata.streams.by_numbers(sorted(numbers)[:MEASURED_STREAM_COUNT_MAX]):
            if not stream.is_deleted:
                async with self._isolation.of(stream.name):
                    await self._measure_stream(stream, sizes.get(stream.number))
        self._isolation.end_round()

    async def _measure_stream(self, stream: Stream, backlog: StreamBacklog | None) -> None:
        metrics.COMPACTION_STREAM_BACKLOG.labels(stream.name).set(backlog.size_bytes if backlog else 0)
        count = min(stream.partition_count, MEASURED_PARTITION_COUNT_MAX)
        keys = [stream.partition(index) for index in range(count)]
        bounds = await self._metadata.log.bounds(keys)
        compacted = await self._metadata.tasks.compacted(keys)
        records = metrics.COMPACTION_STREAM_RECORDS
        records.labels(stream.name, "committed").set(sum(found.end for found in bounds.values()))
        records.labels(stream.name, "compacted").set(sum(compacted.values()))
        table = self.worker.reports.table_records(stream.number)
        if table is not None:
            records.labels(stream.name, "table").set(table)
