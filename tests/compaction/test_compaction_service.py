# ruff: noqa: SLF001 - steps of a worker are taken one by one, without its loop
"""Planner, worker, commit and sweep on real stores: SQLite metadata, a local object store, Iceberg tables, work in this process."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bearlake.clock import SystemClock
from bearlake.compaction import encoding
from bearlake.compaction.commit import Work
from bearlake.compaction.covering import check_task_cover
from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.runner import InProcess
from bearlake.compaction.service import Compactor
from bearlake.compaction.settings import (
    CompactionSettings,
    MergeSettings,
    PlannerSettings,
    StreamPriority,
    SweepSettings,
    WorkerSettings,
)
from bearlake.compaction.workbench import Workbench
from bearlake.errors import Corrupt
from bearlake.metadata import Metadata, registering
from bearlake.metadata.compaction import OffsetRange, TaskClaim, TaskKind, TaskState
from bearlake.metadata.model import BatchCommit, ObjectCommit, ObjectKind, ServerRef, Stream, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.objects import ObjectStore
from bearlake.owned_tasks import TaskDied
from bearlake.records import codec as record_codec
from bearlake.table.iceberg import IcebergTables
from bearlake.table.model import AppliedTask, TableChange, TableCommit
from bearlake.wal import writer as wal_writer
from bearlake.wal.format import Part
from bearlake.wal.keys import KeySource
from fixtures.tables import local_store, tables_in
from fixtures.waiting import WAIT_S

SETTINGS = CompactionSettings(
    planner=PlannerSettings(pause_ms=5, wait_ms=50, retry_pause_ms=20, reconcile_ms=100),
    worker=WorkerSettings(
        claim_pause_ms=20, retry_first_ms=20, retry_max_ms=100, unavailable_pause_ms=20, attempts_max=2
    ),
    merge=MergeSettings(fan_in=2, input_count_max=4),
    sweep=SweepSettings(grace_ms=0, pause_ms=50, file_pause_ms=100, table_pause_ms=100_000, retry_pause_ms=20),
)


class Deployment:
    """Stores, tables, one stream, and a server that produces."""

    def __init__(self, metadata: Metadata, store: ObjectStore, tables: IcebergTables) -> None:
        self.metadata = metadata
        self.store = store
        self.tables = tables
        self.keys = KeySource(SystemClock(), random.Random(1).getrandbits)
        self.server = ServerRef(node_id=-1, epoch=-1)

    async def register(self, name: str) -> ServerRef:
        found = await registering.register(
            self.metadata.servers, name, zone=None, endpoints={}, version="1", timeout_ms=600_000
        )
        return found.server

    async def create(self, name: str = "orders", partition_count: int = 2, **configs: str) -> Stream:
        if self.server.node_id < 0:
            self.server = await self.register("producer")
        named = {key.replace("__", "."): value for key, value in configs.items()}
        configs = {"table.freshness_ms": "100", **named}
        return await self.metadata.streams.create(
            StreamSpec(name=name, partition_count=partition_count, configs=configs)
        )

    async def produce(self, stream: Stream, *indexes: int, count: int = 3) -> str:
        """Write one WAL object with a batch for each of the partitions; return its key."""
        batches = [
            record_codec.encode(
                [
                    record_codec.Record(key=b"k", value=b"%d" % at, timestamp=SystemClock().now_ms())
                    for at in range(count)
                ]
            )
            for _ in indexes
        ]
        parts = [Part(stream.id.bytes, index, [batch]) for index, batch in zip(indexes, batches, strict=True)]
        sealed = wal_writer.seal(parts, node_id=self.server.node_id, server_epoch=self.server.epoch)
        key = self.keys.next()
        await self.store.put(key, [sealed.buffer])
        await self.metadata.log.commit(
            ObjectCommit(
                token=key,
                server=self.server,
                size=len(sealed.buffer),
                batches=[
                    BatchCommit(stream.partition(index), position, len(batch), count, SystemClock().now_ms())
                    for index, batch, position in zip(indexes, batches, sealed.positions, strict=True)
                ],
            )
        )
        return key

    def compactor(self, server: ServerRef, runner: object = None, settings: CompactionSettings = SETTINGS) -> Compactor:
        return Compactor(
            self.metadata,
            self.store,
            self.tables,
            runner or InProcess(self.store, Workbench()),  # type: ignore[arg-type]
            server,
            settings,
            random_source=random.Random(2),
        )

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until the condition holds; check at most ten times a second."""
        async with asyncio.timeout(WAIT_S):
            while not await holds():  # noqa: ASYNC110 - what happens in the stores has no event here
                await asyncio.sleep(0.02)

    async def is_done(self) -> bool:
        """Whether everything is compacted and no task is left."""
        waiting = await self.metadata.tasks.uncompacted(after=Stream.partition(NO_STREAM, 0), limit=1)
        return not waiting and not await self.metadata.tasks.list()

    async def rows(self, stream: Stream) -> int:
        summary = await self.tables.summary(stream)
        return 0 if summary is None else summary.row_count

    async def kinds(self, stream: Stream) -> set[ObjectKind]:
        bounds = await self.metadata.log.bounds([stream.partition(0), stream.partition(1)])
        ranges = [OffsetRange(key, found.start, found.end) for key, found in bounds.items()]
        return {found.kind for found in await self.metadata.log.slices(ranges)}


NO_STREAM = Stream(name="", id=uuid.UUID(int=0), number=0, partition_count=1, configs={}, created_ms=0)


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[Deployment]:
    store, url = local_store(tmp_path)
    metadata = await open_metadata("memory:///", None)
    tables = tables_in(tmp_path, store, url)
    yield Deployment(metadata, store, tables)
    await tables.close()
    await metadata.close()
    await store.close()


async def running(compactor: Compactor, work: Awaitable[None]) -> None:
    """Run the compactor during the block, and stop it cleanly."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(compactor.run())
        await work
        await compactor.drain()
        task.cancel()
    await compactor.close()


async def test_committed_records_reach_the_table_soon_and_their_objects_are_deleted(deployment: Deployment) -> None:
    stream = await deployment.create()
    keys = [await deployment.produce(stream, 0, 1) for _ in range(3)]
    compactor = deployment.compactor(await deployment.register("worker"))

    async def swept() -> bool:
        left = {found.key async for found in deployment.store.list("wal/")}
        return await deployment.is_done() and not left.intersection(keys)

    await running(compactor, deployment.until(swept))

    assert await deployment.rows(stream) == 18
    assert await deployment.kinds(stream) == {ObjectKind.PARQUET}
    assert not compactor.status().held_task_count


async def test_small_files_are_merged_into_one_with_the_same_rows(deployment: Deployment) -> None:
    stream = await deployment.create()
    compactor = deployment.compactor(await deployment.register("worker"))

    async def produce() -> None:
        for _ in range(4):
            await deployment.produce(stream, 0, 1)
            await deployment.until(deployment.is_done)
        await deployment.until(is_merged)

    async def is_merged() -> bool:
        return len(await deployment.metadata.objects.data_files(stream.number)) < 4 and await deployment.is_done()

    await running(compactor, produce())

    assert await deployment.rows(stream) == 24


async def test_a_stream_without_a_table_is_also_compacted(deployment: Deployment) -> None:
    stream = await deployment.create(table__enable="false")
    await deployment.produce(stream, 0, 1)
    await running(deployment.compactor(await deployment.register("worker")), deployment.until(deployment.is_done))

    assert await deployment.tables.state(stream) is None
    assert await deployment.kinds(stream) == {ObjectKind.PARQUET}


class Stopped(BaseException):
    """Raised where the worker is killed."""


class DyingTables:
    """Tables whose worker dies before or after the commit."""

    def __init__(self, inner: IcebergTables, *, is_committed: bool) -> None:
        self._inner = inner
        self._is_committed = is_committed

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def commit(self, *arguments: object, **named: object) -> None:
        if self._is_committed:
            await self._inner.commit(*arguments, **named)  # type: ignore[arg-type]
        raise Stopped


@pytest.mark.parametrize("is_committed", [False, True])
async def test_a_worker_that_dies_around_the_table_commit_leaves_each_row_once(
    deployment: Deployment, is_committed: bool
) -> None:
    stream = await deployment.create()
    await deployment.produce(stream, 0, 1)
    dying = deployment.compactor(await deployment.register("worker"))
    dying.worker._committer._tables = DyingTables(deployment.tables, is_committed=is_committed)  # type: ignore[assignment]
    with pytest.raises(TaskDied):
        async with asyncio.timeout(WAIT_S):
            await dying.run()
    await running(deployment.compactor(await deployment.register("worker")), deployment.until(deployment.is_done))

    assert await deployment.rows(stream) == 6
    entries = await deployment.metadata.objects.data_files(stream.number)
    state = await deployment.tables.state(stream)
    assert state is not None
    assert set(state.applied.values()) == ({1} if is_committed else {2})
    files = {found.key async for found in deployment.store.list("table/") if "/data/" in found.key}
    assert files == {entry.object.key for entry in entries}  # the files of the losing epoch are deleted


async def test_a_zombie_can_commit_neither_the_table_nor_the_index(deployment: Deployment) -> None:
    stream = await deployment.create()
    await deployment.produce(stream, 0, 1)
    zombie = deployment.compactor(await deployment.register("worker"))
    held: list[Work] = []

    async def keep(works: Sequence[Work]) -> None:
        held.extend(works)
        raise Stopped

    zombie.worker._commit_round = keep  # type: ignore[method-assign]
    with pytest.raises(TaskDied):
        await zombie.run()
    await running(deployment.compactor(await deployment.register("worker")), deployment.until(deployment.is_done))
    (work,) = held
    change = TableChange(
        task=AppliedTask(task_id=work.task.id, epoch=work.claim.epoch, ranges={0: (0, 3), 1: (0, 3)}),
        add=[file.file for item in work.result.items for file in item.files],
    )
    await deployment.tables.commit(stream, TableCommit(changes=[change]), closed_tasks=())
    errors = await zombie.worker._committer.commit(stream, [work])

    assert [type(error).__name__ for error in errors.values()] == ["Fenced"]
    assert await deployment.rows(stream) == 6


class Failing:
    """A runner that fails the tasks of one stream."""

    def __init__(self, inner: InProcess, stream: Stream) -> None:
        self._inner = inner
        self._stream = stream

    async def run(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        if any(item.stream_id == self._stream.id for item in items):
            raise Corrupt("damaged")
        return await self._inner.run(items)


async def test_a_task_that_keeps_failing_is_quarantined_without_effect_on_others(deployment: Deployment) -> None:
    bad, good = await deployment.create("bad"), await deployment.create("good")
    keys = []
    for stream in (bad, good):
        keys.append(await deployment.produce(stream, 0, 1))
    runner = Failing(InProcess(deployment.store, Workbench()), bad)
    compactor = deployment.compactor(await deployment.register("worker"), runner)

    async def is_quarantined() -> bool:
        tasks = await deployment.metadata.tasks.list()
        is_swept = not {found.key async for found in deployment.store.list("wal/")}.intersection(keys)
        return [task.state for task in tasks] == [TaskState.QUARANTINED] and is_swept

    await running(compactor, deployment.until(is_quarantined))
    (task,) = await deployment.metadata.tasks.list()
    bounds = await deployment.metadata.log.bounds([bad.partition(0)])
    (found,) = await deployment.metadata.log.slices([OffsetRange(bad.partition(0), 0, bounds[bad.partition(0)].end)])

    assert task.stream_number == bad.number
    assert "damaged" in task.error
    assert found.object_key.startswith("kept/")
    assert await deployment.store.size(found.object_key) == found.object_size
    assert await deployment.rows(good) == 6
    await deployment.metadata.tasks.retry(task.id)
    await running(deployment.compactor(await deployment.register("worker")), deployment.until(deployment.is_done))
    assert await deployment.rows(bad) == 6


async def test_only_one_worker_plans(deployment: Deployment) -> None:
    stream = await deployment.create()
    first = deployment.compactor(await deployment.register("worker-1"))
    second = deployment.compactor(await deployment.register("worker-2"))

    async def produced() -> None:
        for _ in range(3):
            await deployment.produce(stream, 0, 1)
            await deployment.until(deployment.is_done)
        assert [first.planner.is_planning, second.planner.is_planning].count(True) == 1

    await running(first, running(second, produced()))

    assert await deployment.rows(stream) == 18


async def test_workers_with_different_streams_compact_them_in_parallel(deployment: Deployment) -> None:
    names = ("orders-eu", "orders-us", "clicks", "nobodys")
    streams = {name: await deployment.create(name) for name in names}
    of_orders, of_clicks = [
        deployment.compactor(await deployment.register(pattern), settings=replace(SETTINGS, streams=(pattern,)))
        for pattern in ("orders-*", "[c-d]*")
    ]

    async def waiting() -> list[int]:
        return [partition.stream_number for partition in await deployment.metadata.tasks.backlog()]

    async def are_theirs_done() -> bool:
        return await waiting() == [streams["nobodys"].number] and not await deployment.metadata.tasks.list()

    async def produced() -> None:
        for _ in range(5):  # enough for merges, which are planned for the same streams
            for stream in streams.values():
                await deployment.produce(stream, 0, 1)
            await deployment.until(are_theirs_done)
        assert (of_orders.planner.is_planning, of_clicks.planner.is_planning) == (True, True)

    await running(of_orders, running(of_clicks, produced()))

    assert [await deployment.rows(stream) for stream in streams.values()] == [30, 30, 30, 0]
    assert set(of_orders.worker.reports.recent()) == {streams["orders-eu"].number, streams["orders-us"].number}
    assert of_clicks.worker.reports.recent() == [streams["clicks"].number]
    commits = {commit.stream_number: commit.commit_count for commit in await deployment.metadata.tasks.commits()}
    assert set(commits) == {streams[name].number for name in names[:3]}
    assert min(commits.values()) >= 5


async def test_workers_whose_streams_overlap_compact_each_record_once(deployment: Deployment) -> None:
    streams = [await deployment.create(name) for name in ("a", "b", "c")]
    everything = deployment.compactor(await deployment.register("everything"))
    selective = deployment.compactor(await deployment.register("some"), settings=replace(SETTINGS, streams=("[ab]",)))

    async def produced() -> None:
        for _ in range(5):
            for stream in streams:
                await deployment.produce(stream, 0, 1)
            await deployment.until(deployment.is_done)

    await running(everything, running(selective, produced()))

    assert [await deployment.rows(stream) for stream in streams] == [30, 30, 30]


async def test_tasks_of_streams_with_priority_are_done_first(deployment: Deployment) -> None:
    names = ("plain", "late", "first")
    streams = {name: await deployment.create(name) for name in names}
    for stream in streams.values():
        await deployment.produce(stream, 0, 1)
    priorities = (StreamPriority(streams="first", priority=2), StreamPriority(streams="late", priority=-1))
    one_by_one = replace(SETTINGS.worker, claim_count_max=1, commits_under_way_max=1)
    # Claims wait until all three are planned.
    planned = asyncio.Event()
    compactor = deployment.compactor(
        await deployment.register("worker"), settings=replace(SETTINGS, worker=one_by_one, priorities=priorities)
    )
    claim = compactor.worker._claim

    async def claim_when_planned() -> list[Work]:
        if not planned.is_set() and len(await deployment.metadata.tasks.list()) < len(names):
            return []
        planned.set()
        return await claim()

    compactor.worker._claim = claim_when_planned  # type: ignore[method-assign]
    await running(compactor, deployment.until(deployment.is_done))

    assert compactor.worker.reports.recent() == [streams[name].number for name in ("first", "plain", "late")]


async def test_a_result_that_does_not_cover_the_offsets_read_is_refused(deployment: Deployment) -> None:
    stream = await deployment.create()
    await deployment.produce(stream, 0, 1)
    compactor = deployment.compactor(await deployment.register("worker"))
    seen: list[Work] = []

    async def keep(works: Sequence[Work]) -> None:
        seen.extend(works)
        raise Stopped

    compactor.worker._commit_round = keep  # type: ignore[method-assign]
    with pytest.raises(TaskDied):
        await compactor.run()
    (work,) = seen
    check_task_cover(work.task.id, work.slices, work.result)
    assert encoding.decode_result(encoding.encode_result(work.result)) == work.result
    assert work.claim == TaskClaim(task_id=work.task.id, epoch=1, worker=work.claim.worker)
    assert work.task.kind is TaskKind.COMPACT
    with pytest.raises(Corrupt):
        check_task_cover(work.task.id, work.slices[1:], work.result)
