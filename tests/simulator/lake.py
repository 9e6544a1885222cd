"""Compaction in a simulated deployment: workers with the real planner, worker and sweeper, tables in memory, real Parquet files.

A worker may crash at any of its store calls, before or after the effect; it may freeze, be replaced while frozen and resume later (a
zombie), or stop gracefully. After a crash, all workers may be gone for longer than the orphan sweep's grace period. A sweep without any
grace period may run concurrently. Some tasks are poisoned: they fail until the deployment is healed. One stream's table may be
unreadable until all other tables are done. At the end everything is compacted, every record that can be a row is exactly one row, and
the object store holds no unreferenced object.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bearlake.compaction.quarantine import KEPT_PREFIX
from bearlake.compaction.runner import InProcess
from bearlake.compaction.service import Compactor
from bearlake.compaction.settings import CompactionSettings
from bearlake.compaction.sweeper import TABLE_PREFIX, Sweeper
from bearlake.compaction.workbench import TaskLimits, Workbench
from bearlake.errors import Fenced, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey, ServerRef, stream_number
from bearlake.metadata.registering import register
from bearlake.objects.retrying import RetryingObjectStore
from bearlake.streams.tenure import Tenure
from bearlake.table.settings import TableSettings
from simulator.heartbeats import Heartbeats
from simulator.network import RemoteMetadata, RemoteObjectStore, run_in
from simulator.tables import MemoryTables, PartlyUnreadable, RemoteTables
from simulator.worker_faults import CrashingNetwork, FailingRunner

if TYPE_CHECKING:
    from simulator.deployment import Deployment

T = TypeVar("T")

FINISH_S = 240.0
"""Maximum virtual time until a healed deployment has compacted and swept everything."""
WORKER_TIMEOUT_MS = 2_500
HEARTBEAT_MS = 500
TRACE_LENGTH = 3_000
AGGRESSIVE_SWEEP_PAUSE_S = 0.05
"""Longest pause between two sweeps without a grace period."""
EXPIRY_LATE_MS = 20_000
"""A snapshot that exceeds its maximum age by this much has been missed by the expiry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """Compaction's part of a scenario; rates are probabilities."""

    compaction: CompactionSettings
    table: TableSettings = field(default_factory=TableSettings)
    limits: TaskLimits = field(default_factory=TaskLimits)
    worker_count: int = 2
    chaos_pause_s: float = 1.0
    chaos_weights: Sequence[float] = (1, 1, 1, 1)
    """Weights of crash, zombie, freeze, graceful stop."""
    crash_rate: float = 0.0
    """Per store call."""
    crash_at_call: int = 0
    """The number of the call at which the first worker crashes (0: never)."""
    poison_rate: float = 0.0
    """Per task."""
    codec_rate: float = 0.3
    """Batches that are compressed."""
    inexact_rate: float = 0.0
    """Batches that rows cannot hold: records that do not decode, header keys that are not UTF-8."""
    crash_before_swap_rate: float = 0.0
    """Per swap: the worker crashes when the table has the task and the index does not."""
    absence_rate: float = 0.0
    """Per crash: all workers crash, and none restarts for longer than the orphan sweep's grace period."""
    late_commit_rate: float = 0.0
    """Per request to replace a table's version: the catalog executes it up to 5 s late, after its caller has given up."""
    late_merge_rate: float = 0.0
    """The same for requests that remove files from a table; the larger of both rates applies."""
    freeze_before_load_rate: float = 0.0
    """Per load of a table in a commit: the worker freezes before it sends its request, is replaced, and resumes up to 5 s later."""
    is_sweep_aggressive: bool = False
    """Whether kept objects and data files are swept without a grace period until the deployment is healed."""
    unreadable: str = ""
    """Name of the stream whose table is unreadable until all other streams are done; empty: none."""
    number_gap: int = 0
    """Number of stream numbers that are skipped before the first stream."""


class WorkerNode:
    """One worker process."""

    def __init__(self, deployment: "Deployment", lake: "Lake", name: str, incarnation: int) -> None:
        self._deployment = deployment
        self._lake = lake
        self.name = name
        self.process = deployment.loop.process(f"{name}.{incarnation}")
        self.server: ServerRef | None = None
        self.compactor: Compactor | None = None
        self.is_gone = False
        self._random = deployment.randomness(f"worker {self.process.name}")
        settings = lake.settings
        at_call = settings.crash_at_call if incarnation == 1 else 0
        # Any: it replaces the network
        network, metadata = deployment.network, deployment.metadata
        line = CrashingNetwork(network, self._random, settings, at_call, self.crash, self._freeze_and_replace)
        self._line = cast("Any", line)
        self._metadata = RemoteMetadata(self._line, metadata, can_be_late=network.settings.can_be_late)
        self._run = run_in(self.process, deployment.loop, self._main())

    async def _main(self) -> None:
        deployment, settings = self._deployment, self._lake.settings
        registration = await self._until_available(
            lambda: register(
                self._metadata.servers,
                self.name,
                zone=None,
                endpoints={},
                version="1",
                timeout_ms=WORKER_TIMEOUT_MS,
            )
        )
        self.server = registration.server
        objects = RemoteObjectStore(self._line, deployment.store)
        store = RetryingObjectStore(objects, deployment.settings.retries, self._random)
        workbench = Workbench(limits=settings.limits, clock=deployment.clock, random_bits=self._random.getrandbits)
        readable: Any = self._lake.readable
        tables: Any = RemoteTables(self._line, readable)
        self.compactor = Compactor(
            self._metadata,
            store,
            tables,
            FailingRunner(deployment, InProcess(store, workbench), settings.poison_rate),
            registration.server,
            settings.compaction,
            table_settings=settings.table,
            clock=deployment.clock,
            random_source=self._random,
            on_fenced=self._fenced,
        )
        deployment.trace("compacts", server=self.server)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat(registration.server))
                group.create_task(self.compactor.run())
        except* Exception as errors:  # noqa: BLE001 - the boundary of the process: every error is a finding
            deployment.fail(f"a worker died: {''.join(traceback.format_exception(errors))[-TRACE_LENGTH:]}")

    async def _beat(self, server: ServerRef) -> None:
        tenure = Tenure(self._metadata.servers, server, boot_time_s=self._deployment.loop.time)
        try:
            await Heartbeats(self._metadata.servers, tenure, HEARTBEAT_MS, WORKER_TIMEOUT_MS).run()
        except Fenced:
            self._fenced()

    async def _until_available(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except (Unavailable, Overloaded):
                await asyncio.sleep(HEARTBEAT_MS / 1000)

    def _fenced(self) -> None:
        if not self.is_gone:
            self._deployment.events["worker fenced"] += 1
            run_in(self.process, self._deployment.loop, self.stop(is_graceful=False))

    def crash(self) -> None:
        """Stop at once."""
        if not self.is_gone:
            self.is_gone = True
            self._deployment.loop.pause(self.process)
            self._deployment.events["worker crash"] += 1
            self._deployment.trace("crashes", node=self.process.name)
            self._lake.crashed()

    def _freeze_and_replace(self) -> None:
        if not self.is_gone:
            self._lake.overtake(self)

    def resume(self) -> None:
        """Resume, unless the worker has crashed or stopped."""
        if not self.is_gone:
            self._deployment.trace("goes on", node=self.process.name)
            self._deployment.loop.resume(self.process)

    async def stop(self, *, is_graceful: bool = True) -> None:
        """Stop (runs in this worker's process)."""
        if self.is_gone:
            return
        self.is_gone = True
        if is_graceful and self.compactor is not None:
            await self.compactor.drain()
        self._run.cancel()
        await asyncio.wait([self._run])
        if self.compactor is not None:
            await self.compactor.close()
        server = self.server
        if is_graceful and server is not None:
            await self._until_available(lambda: self._metadata.servers.leave(server))
        self._deployment.trace("stopped", node=self.process.name)


class Lake:
    """All workers and tables of one deployment."""

    def __init__(self, deployment: "Deployment", settings: LakeSettings) -> None:
        self._deployment = deployment
        self.settings = settings
        truth = deployment.truth.lake
        truth.tables = self.tables = MemoryTables(deployment.clock, truth.table_changed, truth.table_dropped)
        self._random = deployment.randomness("lake")
        self._workers: dict[str, WorkerNode] = {}
        self._zombies: list[WorkerNode] = []
        self._incarnation_count = 0
        self._troubles: list[asyncio.Task[None]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._away_until_s = 0.0
        self.readable = PartlyUnreadable(self.tables, settings.unreadable)
        """The tables, as workers see them."""

    def start(self) -> None:
        """Start the workers and their faults."""
        for number in range(self.settings.worker_count):
            self._start_worker(f"worker-{number}")
        self._keeper = asyncio.create_task(self._keep_working())
        self._troubles = [asyncio.create_task(self._trouble())]
        if self.settings.is_sweep_aggressive:
            self._troubles.append(asyncio.create_task(self._sweep_aggressively()))

    def _start_worker(self, name: str) -> None:
        self._incarnation_count += 1
        self._workers[name] = WorkerNode(self._deployment, self, name, self._incarnation_count)

    async def _keep_working(self) -> None:
        """Restart each worker some time after it has gone."""
        while True:
            await asyncio.sleep(0.2 + self._random.random())
            for name, worker in list(self._workers.items()):
                if worker.is_gone and self._deployment.loop.time() >= self._away_until_s:
                    self._start_worker(name)

    def crashed(self) -> None:
        """A worker crashed; perhaps crash all workers for a long time."""
        now_s, rate = self._deployment.loop.time(), self.settings.absence_rate
        is_possible = rate > 0 and now_s >= self._away_until_s and not self._deployment.network.is_healthy
        if not is_possible or self._random.random() >= rate:
            return
        grace_s = self.settings.compaction.sweep.orphan_grace_ms / 1000
        self._away_until_s = now_s + grace_s * (1 + self._random.random())
        self._deployment.events["all workers away"] += 1
        for worker in [*self._zombies, *self._workers.values()]:
            worker.crash()

    async def _sweep_aggressively(self) -> None:
        """Run the most aggressive sweeper: it treats every object as an orphan, whatever its age."""
        deployment = self._deployment
        sweep = replace(self.settings.compaction.sweep, orphan_grace_ms=-1)
        metadata: Any = deployment.metadata  # it has all methods that a sweeper calls
        readable: Any = self.readable
        sweeper = Sweeper(metadata, deployment.store, readable, sweep, deployment.clock)
        while True:
            await asyncio.sleep(self._random.random() * AGGRESSIVE_SWEEP_PAUSE_S)
            deployment.events["aggressive sweep"] += 1
            await sweeper.sweep_prefix(self._random.choice([KEPT_PREFIX, TABLE_PREFIX]))

    async def _trouble(self) -> None:
        deeds = [self._crash, self.overtake, self._freeze, self._stop]
        while True:
            await asyncio.sleep(self._random.expovariate(1.0) * self.settings.chaos_pause_s)
            found = [worker for worker in self._workers.values() if not worker.is_gone and not worker.process.is_paused]
            if found:
                self._random.choices(deeds, self.settings.chaos_weights)[0](self._random.choice(found))

    def _crash(self, worker: WorkerNode) -> None:
        worker.crash()

    def overtake(self, worker: WorkerNode) -> None:
        """Freeze the worker, start another worker under its name, and resume the frozen one later."""
        self._deployment.events["worker zombie"] += 1
        self._deployment.trace("freezes and is replaced", node=worker.process.name)
        self._deployment.loop.pause(worker.process)
        self._zombies.append(worker)
        self._start_worker(worker.name)
        self._deployment.loop.call_later(self._random.random() * 5, worker.resume)

    def _freeze(self, worker: WorkerNode) -> None:
        self._deployment.events["worker freeze"] += 1
        self._deployment.trace("freezes", node=worker.process.name)
        self._deployment.loop.pause(worker.process)
        self._deployment.loop.call_later(self._random.random() * 5, worker.resume)

    def _stop(self, worker: WorkerNode) -> None:
        self._deployment.events["worker stop"] += 1
        run_in(worker.process, self._deployment.loop, worker.stop())

    def is_expected(self, record: logging.LogRecord) -> bool:
        """Return whether the scenario causes this logged error: poisoned or slow tasks are quarantined."""
        error = str(vars(record).get("error", ""))
        is_asked_for = "is poisoned" in error or "is unreadable" in error or error == "TimeoutError()"
        is_swept = self.settings.is_sweep_aggressive and "was forbidden or is in use" in error
        return "quarantined" in record.getMessage() and (is_asked_for or is_swept)

    # -- the end -------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Stop all faults and resume frozen workers."""
        for task in self._troubles:
            task.cancel()
        for worker in [*self._zombies, *self._workers.values()]:
            if not worker.is_gone:
                self._deployment.loop.resume(worker.process)

    async def wait_until_done(self) -> None:
        """Wait until everything is compacted, merged and swept; then stop the workers and check the tables."""
        deployment = self._deployment
        if self.readable.name and not await self._is_done("beside an unreadable table", self._left_beside):
            return
        self.readable.heal()
        if not await self._is_done("to do", self._left_to_do):
            return
        if self._keeper is not None:
            self._keeper.cancel()
        stopping = [
            run_in(worker.process, deployment.loop, worker.stop())
            for worker in [*self._zombies, *self._workers.values()]
            if not worker.is_gone
        ]
        if stopping:
            _, waiting = await asyncio.wait(stopping, timeout=FINISH_S)
            if waiting:
                deployment.fail("a worker does not stop")
        await self._check()

    async def _is_done(self, what: str, left_of: Callable[[], Awaitable[str]]) -> bool:
        left = ""
        for _ in range(int(FINISH_S / 0.5)):
            await asyncio.sleep(0.5)
            left = await left_of()
            if not left:
                return True
        self._deployment.fail(f"after {FINISH_S} s there is still {what}: {left}")
        return False

    async def _left_beside(self) -> str:
        """I11: describe the remaining work of all streams except the one whose table is unreadable."""
        metadata, now_ms = self._deployment.metadata, self._deployment.clock.now_ms()
        others = {
            stream.number: stream for stream in self._deployment.truth.active() if stream.name != self.readable.name
        }
        for found in await metadata.tasks.uncompacted(after=PartitionKey(0), limit=1_000):
            if stream_number(found.partition) in others:
                return f"to compact: {found}"
        for task in await metadata.tasks.list():
            if task.stream_number in others:
                return f"task: {task}"
        for number, stream in others.items():
            table = self.tables.tables.get(number)
            if table is None and stream.configs.get("table.enable") != "false":
                return f"no table of {stream.name}"
            for later in [] if table is None else table.snapshots[1:]:
                if later.timestamp_ms < now_ms - EXPIRY_LATE_MS - self.settings.table.snapshot_keep_ms:
                    return f"an old snapshot of {stream.name}"
        return ""

    async def _left_to_do(self) -> str:
        metadata, truth = self._deployment.metadata, self._deployment.truth
        if found := await metadata.tasks.uncompacted(after=PartitionKey(0), limit=10):
            return f"to compact: {found}"
        if tasks := await metadata.tasks.list():
            return f"tasks: {tasks}"
        keys = {found.key async for found in self._deployment.store.list("")}
        named = truth.lake.named()
        live = {key for table in self.tables.tables.values() for shot in table.snapshots for key in shot.files}
        lost = named - keys
        truth.expect(not lost, "I4: what the index names is there", keys=sorted(lost)[:5])
        # A late put may restore a swept object; the object is swept again once its commit is forgotten.
        if garbage := keys - named - live - truth.deleted:
            return f"to sweep: {sorted(garbage)[:5]} of {len(garbage)}"
        return ""

    async def _check(self) -> None:
        """Check that every record is exactly one row of its stream's table."""
        deployment = self._deployment
        for stream in deployment.truth.active():
            keys = deployment.keys(stream)
            compacted = await deployment.metadata.tasks.compacted(keys)
            for key in keys:
                partition = deployment.truth.partition(key)
                deployment.truth.expect(
                    compacted.get(key, 0) >= partition.end or partition.start == partition.end,
                    "everything is compacted",
                    partition=key,
                    compacted=compacted.get(key),
                    end=partition.end,
                )
            if stream.configs.get("table.enable") != "false":
                deployment.truth.lake.check_complete(stream.number, keys)
        for name, count in deployment.truth.lake.counts.items():
            deployment.events[name] += count
