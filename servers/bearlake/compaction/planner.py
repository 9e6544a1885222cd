"""The planner: turns committed records into tasks, so that every stream reaches its table in time.

A lease ensures that one planner is active. Workers with only some of the streams (`compaction.streams`) share a separate lease, and one
of them plans these streams.

The planner starts from the store's backlog (`TaskQueue.uncompacted`) and open tasks, then follows the commit log: idle streams cost
nothing. A stream is due by bytes or by age (`backlog.py`). Due streams take turns, the longest waiting first. A large stream has a bounded
number of open tasks, so that it cannot starve a thousand small streams. If the log is truncated past the planner's position, or the lease
is lost, the planner discards its memory and starts again: the store is the only source of truth.

The store ignores repeated offers, so a lost reply is harmless; the planner then reads the store again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from bearlake.clock import Clock, SystemClock
from bearlake.compaction import backlog as backlogs
from bearlake.compaction.aborted import stable
from bearlake.compaction.backlog import Backlog
from bearlake.compaction.cleanings import Cleanings
from bearlake.compaction.merging import Merges
from bearlake.compaction.planner_lease import lease_name
from bearlake.compaction.settings import CompactionSettings
from bearlake.errors import BearlakeError, Conflict, Fenced, NotFound, OutOfRange, Overloaded, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import Task, TaskKind, TaskOffer, TaskState
from bearlake.metadata.model import Entry, EntryKind, Lease, PartitionKey, ServerRef, Slice, Stream, stream_number
from bearlake.streams import configs as stream_configs
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)

FIRST = PartitionKey(0)
LOAD_SHARE = 5
"""After a round of planning, the planner pauses for at least this many times the round's duration."""
MERGE_PAUSE_S = 0.5
"""Delay of the task look-up after a change of a stream with an open merge."""


class _Lost(Exception):
    """The state in memory is no longer reliable."""


class Planner:
    """Plans while it holds the lease; see the module docstring. The service's task group owns `run`. `is_planning`: the lease is held."""

    def __init__(
        self,
        metadata: Metadata,
        server: ServerRef,
        settings: CompactionSettings,
        *,
        on_offered: Callable[[], None] = lambda: None,
        on_fenced: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        """Calls `on_offered` after tasks were queued, and `on_fenced` when a newer registration has replaced `server`."""
        self._metadata = metadata
        self._server = server
        self._settings = settings.planner
        self._choice = settings.choice
        self._lease_name = lease_name(settings.streams)
        self._on_offered = on_offered
        self._on_fenced = on_fenced
        self._isolation = FaultIsolation(log, "plan", metadata.log.head)
        self._merges = Merges(metadata.objects, settings.merge, self._isolation)
        self._cleanings = Cleanings(metadata, settings.key_compaction, self._isolation, clock or SystemClock())
        self._backlog = Backlog(settings.planner)
        self._position = 0
        self._reconcile_at_s = 0.0
        self._outage = Outage(log, "planning failed; retrying", "planning works again")
        self.is_planning = False

    async def run(self) -> None:
        """Plan whenever this worker holds the lease. Ends only by cancellation."""
        pause_s = self._settings.retry_pause_ms / 1000
        while True:
            try:
                lease = await self._lease()
                if lease is None:
                    self._outage.over()
                else:
                    await self._plan(lease)
            except _Lost:
                pass
            except OutOfRange:
                log.warning(
                    "the log was truncated past the planner's position; planning from scratch",
                    extra={"position": self._position},
                )
            except Fenced:
                if not await self._has_lost_lease_only():
                    self._on_fenced()
                    await asyncio.Event().wait()
            except BearlakeError as error:
                self._outage.failed(error)
            except Exception as error:  # noqa: BLE001 - boundary: planning starts from scratch, at the log's head
                self._outage.fault("plan compaction", error)
            finally:
                self.is_planning = False
                self._isolation.clear()
            await asyncio.sleep(pause_s)

    async def _lease(self) -> Lease | None:
        """Acquire the lease; None if another worker holds it."""
        try:
            return await self._metadata.leases.acquire(self._lease_name, self._server)
        except Conflict:
            return None

    async def _has_lost_lease_only(self) -> bool:
        """Return, after a write was fenced, whether only the lease was lost."""
        try:
            await self._metadata.servers.heartbeat(self._server)
        except Fenced:
            return False
        except BearlakeError:
            return True
        return True

    async def _plan(self, lease: Lease) -> None:
        await self._load()
        self.is_planning = True
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            await self._name_streams()
            next_s = await self._offer_due(lease, started_s)
            await self._offer_cleanings(lease, started_s)
            await self._offer(await self._merge_offers(), lease)
            if loop.time() >= self._reconcile_at_s:
                await self._reconcile()
            if self._backlog.is_partial and 2 * self._backlog.partition_count < self._settings.partition_count_max:
                raise _Lost
            spent_s = loop.time() - started_s
            await asyncio.sleep(max(self._settings.pause_ms / 1000, LOAD_SHARE * spent_s))
            wait_s = min(self._settings.wait_ms / 1000, max(0.0, next_s - loop.time()))
            await self._follow(round(wait_s * 1000))
            self._outage.over()

    # -- following -----------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Start from scratch. Reads the log's position first, so that later changes are followed."""
        self._backlog = Backlog(self._settings, self._backlog.left_out)
        self._merges.reset()
        self._position = await self._metadata.log.head()
        await self._cleanings.load(self._choice, self._settings.page_count)
        async for task in self._tasks():
            if task.state is TaskState.QUARANTINED:
                self._backlog.busy(task)
        after = FIRST
        while not self._backlog.is_partial:
            page = await self._metadata.tasks.uncompacted(after=after, limit=self._settings.page_count)
            now_s = asyncio.get_running_loop().time()
            for pending in page:
                self._backlog.load(pending, now_s)
            if len(page) < self._settings.page_count:
                break
            after = page[-1].partition
        await self._reconcile()

    async def _name_streams(self) -> None:
        """Look up the freshness of unknown streams, and forget deleted streams."""
        numbers = self._backlog.unknown_streams()
        for at in range(0, len(numbers), self._settings.page_count):
            await self._read_streams(numbers[at : at + self._settings.page_count])

    async def _read_streams(self, numbers: Collection[int]) -> None:
        found = {stream.number: stream for stream in await self._metadata.streams.by_numbers(numbers)}
        for number in numbers:
            async with self._isolation.of(f"rules of stream {number}"):
                self._read_stream(number, found.get(number))

    def _read_stream(self, number: int, stream: Stream | None) -> None:
        if stream is None or stream.is_deleted:
            self._backlog.forget_stream(number)
            self._forget(number)
        elif not self._choice.takes(stream.name):
            self._backlog.leave_out(number)
            self._forget(number)
        else:
            self._cleanings.watch(stream)
            rules = stream_configs.table_rules(stream.name, stream.configs)
            head_start_ms = self._choice.head_start_ms(stream.name)
            self._backlog.set_freshness(number, rules.freshness_ms, head_start_ms)

    def _forget(self, number: int) -> None:
        """Forget a stream that is gone or belongs to other workers."""
        self._merges.forget(number)
        self._cleanings.forget(number)
        self._isolation.forget(f"stream {number}", f"offers of stream {number}", f"rules of stream {number}")

    async def _follow(self, wait_ms: int) -> None:
        """Apply the next page of the log."""
        await self._metadata.log.wait(self._position, wait_ms=wait_ms)
        page = await self._metadata.log.follow(self._position, limit=self._settings.page_count)
        now_s = asyncio.get_running_loop().time()
        changed: set[int] = set()
        swapped: set[PartitionKey] = set()
        for entry in page.entries:
            self._apply(entry, now_s, changed, swapped)
        if changed:
            await self._read_streams(changed)
        if swapped:
            await self._refresh(swapped)
        if page.entries:
            self._position = page.entries[-1].position

    def _apply(self, entry: Entry, now_s: float, changed: set[int], swapped: set[PartitionKey]) -> None:
        if entry.kind is EntryKind.COMMIT:
            for piece in entry.slices:
                if not self._backlog.committed(piece, now_s):
                    raise _Lost
        elif entry.kind is EntryKind.TRIM:
            self._backlog.trimmed(entry.partition, entry.start_offset)
        elif entry.kind is EntryKind.STREAM:
            changed.add(entry.stream_number)
        elif entry.kind is EntryKind.SWAP:
            for partition, _, _ in entry.ranges:
                waiting = self._backlog.get(partition)
                if waiting is not None and waiting.task_end >= 0:
                    swapped.add(partition)
            for number in {stream_number(partition) for partition, _, _ in entry.ranges}:
                if number in self._backlog.left_out:
                    continue
                self._cleanings.swapped(number)
                if self._merges.swapped(number):  # its open merge may be done
                    self._reconcile_at_s = min(self._reconcile_at_s, now_s + MERGE_PAUSE_S)

    async def _refresh(self, partitions: Collection[PartitionKey]) -> None:
        """Find out which of the partitions' tasks are done."""
        keys = sorted(partitions)
        size = self._settings.page_count
        for at in range(0, len(keys), size):
            page = keys[at : at + size]
            found = await self._metadata.tasks.compacted(page)
            for partition in page:
                if partition not in found:
                    self._backlog.forget(partition)
                else:
                    self._backlog.compacted(partition, found[partition])

    async def _reconcile(self) -> None:
        """Read all open tasks: update the taken partitions, and find tasks that ended unnoticed."""
        taken: set[PartitionKey] = set()
        merges: set[int] = set()
        self._backlog.recount()
        were_quarantined, self._backlog.quarantined = self._backlog.quarantined, set()
        tried_again: list[Task] = []
        async for task in self._tasks():
            self._opened(task)
            partitions = {partition for partition, _, _ in task.ranges}
            taken |= partitions
            if partitions & were_quarantined:
                tried_again.append(task)
            if task.kind is TaskKind.MERGE:
                merges.add(task.id)
        for task_id in sorted(self._merges.open):
            if task_id not in merges:
                self._merges.closed(task_id)
        free = [partition for partition in self._backlog.open_partitions() if partition not in taken]
        for partition in [*free, *sorted(were_quarantined - self._backlog.quarantined)]:
            await self._reload(partition)
        for task in tried_again:
            self._opened(task)
        self._reconcile_at_s = asyncio.get_running_loop().time() + self._settings.reconcile_ms / 1000

    async def _tasks(self) -> AsyncIterator[Task]:
        """Yield all open tasks, page by page."""
        after = 0
        while page := await self._metadata.tasks.list(after=after, limit=self._settings.page_count):
            for task in page:
                yield task
            after = page[-1].id

    async def _reload(self, partition: PartitionKey) -> None:
        """Forget a partition's state and read it from the store."""
        self._backlog.forget(partition)
        for pending in await self._metadata.tasks.uncompacted(after=PartitionKey(partition - 1), limit=1):
            if pending.partition == partition:
                self._backlog.load(pending, asyncio.get_running_loop().time())

    # -- offers --------------------------------------------------------------------------------------------------

    async def _offer_due(self, lease: Lease, now_s: float) -> float:
        """Offer what is due, one task per stream in turn; return when (s) the next stream becomes due."""
        due, next_s = self._backlog.due(now_s)
        room = self._settings.open_task_count_max - self._backlog.task_count()
        queues: list[list[TaskOffer]] = []
        for number in due[: max(0, room)]:
            count_max = self._settings.stream_task_count_max - self._backlog.task_count(number)
            if count_max > 0:
                async with self._isolation.of(f"stream {number}"):
                    queues.append(await self._offers_of(number, count_max, now_s))
        offers = [
            queue[rank] for rank in range(self._settings.stream_task_count_max) for queue in queues if rank < len(queue)
        ]
        await self._offer(offers[: max(0, room)], lease)
        return next_s

    async def _offer_cleanings(self, lease: Lease, now_s: float) -> None:
        """Offer what key compaction is due, first of all merges: a merge of a stream delays its cleaning."""
        open_count = self._cleanings.open_count(self._merges.open)
        offers = await self._cleanings.offers(self._merges.busy_streams(), open_count, now_s)
        self._cleanings.opened(await self._offer(offers, lease), offers)

    async def _merge_offers(self) -> list[TaskOffer]:
        """Return the due merges of our streams."""
        offers = await self._merges.offers(self._cleanings.open_count(self._merges.open))
        unknown = {offer.stream_number for offer in offers if not self._backlog.is_known(offer.stream_number)}
        if unknown and self._choice.streams:
            await self._read_streams(unknown)
        return [offer for offer in offers if offer.stream_number not in self._backlog.left_out]

    async def _offers_of(self, number: int, count_max: int, now_s: float) -> list[TaskOffer]:
        ready = self._backlog.streams[number].ready()[: count_max * self._settings.task_partition_count_max]
        cuts: dict[PartitionKey, Slice] = {}
        for partition, waiting in ready[:]:
            if len(cuts) < count_max and backlogs.is_too_large(waiting, self._settings):
                found = await self._cut(partition, waiting)
                if found is None:
                    ready.remove((partition, waiting))
                else:
                    cuts[partition] = found
        return backlogs.pack(ready, cuts, self._settings, number=number, task_count_max=count_max, now_s=now_s)

    async def _cut(self, partition: PartitionKey, waiting: backlogs.Waiting) -> Slice | None:
        limit = min(self._settings.task_slice_count_max, self._settings.page_count)
        try:
            located = await self._metadata.log.locate(partition, waiting.start, limit=limit)
        except (NotFound, OutOfRange):
            self._backlog.forget(partition)
            return None
        start = max(waiting.start, located.bounds.start)
        slices = [found.slice for found in located.slices]
        return backlogs.cut(partition, start, slices, self._settings, waiting.end)

    async def _offer(self, offers: Sequence[TaskOffer], lease: Lease) -> list[Task]:
        """Offer the tasks, page by page; return those that the store has made."""
        made: list[Task] = []
        size = self._settings.page_count
        for at in range(0, len(offers), size):
            page = await stable(self._metadata, offers[at : at + size])
            if not page:
                continue
            tasks = await self._offer_page(page, lease)
            for task in tasks:
                self._opened(task)
            if tasks:
                self._on_offered()
            metrics.COMPACTION_OFFERED.inc(len(tasks))
            made += tasks
            await self._reload_left_out(page, tasks)
        return made

    async def _offer_page(self, page: Sequence[TaskOffer], lease: Lease) -> Sequence[Task]:
        """Offer the tasks together; if the store refuses one of them, offer each alone."""
        try:
            return await self._metadata.tasks.offer(page, lease)
        except (Fenced, Unavailable, Overloaded):
            raise
        except BearlakeError:
            tasks: list[Task] = []
            for offer in page:
                async with self._isolation.of(f"offers of stream {offer.stream_number}"):
                    tasks += await self._metadata.tasks.offer([offer], lease)
            return tasks

    def _opened(self, task: Task) -> None:
        self._backlog.busy(task)
        self._merges.opened(task)

    async def _reload_left_out(self, offers: Sequence[TaskOffer], tasks: Sequence[Task]) -> None:
        """Reload what the store did not accept: another task has it, or it was trimmed or compacted in the meantime."""
        made = {partition for task in tasks for partition, _, _ in task.ranges}
        made_inputs = {key for task in tasks for key in task.inputs}
        is_left_out = False
        for offer in offers:
            if offer.kind is TaskKind.MERGE and offer.inputs[0] not in made_inputs:
                self._merges.forget(offer.stream_number)
                is_left_out = True
            for partition, _, _ in offer.ranges:
                if partition not in made:
                    await self._reload(partition)
                    is_left_out = True
        if is_left_out:
            await self._reconcile()
