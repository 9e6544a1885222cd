"""What one fault may cost: workers that stay away for months, swaps that cannot succeed, tables that cannot be read (I7, I10, I11)."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.compaction.commit import Work
from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.retention import Retention
from bearlake.compaction.runner import InProcess
from bearlake.compaction.service import Compactor
from bearlake.compaction.settings import (
    CompactionSettings,
    MergeSettings,
    PlannerSettings,
    SweepSettings,
    WorkerSettings,
)
from bearlake.compaction.sweeper import Sweeper
from bearlake.compaction.turns import take_turns
from bearlake.compaction.upkeep import TableUpkeep
from bearlake.compaction.workbench import Workbench
from bearlake.errors import BearlakeError, Conflict, Corrupt, Denied, Fenced, NotFound, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange, TaskState
from bearlake.metadata.model import (
    BatchCommit,
    ObjectCommit,
    ObjectKind,
    PartitionKey,
    ServerRef,
    Stream,
    StreamSpec,
)
from bearlake.metadata.open import open_metadata
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records import codec as record_codec
from bearlake.table.settings import TableSettings
from bearlake.testing.loop import virtual_time
from bearlake.testing.tables import MemoryTables
from bearlake.testing.world import skip_numbers
from bearlake.wal import writer as wal_writer
from bearlake.wal.format import Part
from bearlake.wal.keys import KeySource

DAY_MS = 24 * 3_600_000
SETTINGS = CompactionSettings(
    planner=PlannerSettings(pause_ms=5, wait_ms=50, retry_pause_ms=20, reconcile_ms=100),
    worker=WorkerSettings(
        claim_pause_ms=20,
        retry_first_ms=20,
        retry_max_ms=100,
        unavailable_pause_ms=20,
        attempts_max=3,
        deadline_ms=1_000,
    ),
    merge=MergeSettings(is_enabled=False),
    sweep=SweepSettings(aside_retry_ms=50 * DAY_MS, table_pause_ms=DAY_MS),
)


@dataclass
class Lake:
    """A deployment in memory whose clock the test moves; workers run in the test's loop, in virtual time."""

    clock: ManualClock
    metadata: Metadata
    store: MemoryObjectStore
    tables: MemoryTables
    server: ServerRef
    keys: KeySource
    worker_count: int = 0

    @classmethod
    async def open(cls) -> "Lake":
        clock = ManualClock()
        metadata = await open_metadata("memory:///", None, clock=clock)
        registered = await metadata.servers.register("p", zone=None, endpoints={}, version="1", timeout_ms=600_000)
        keys = KeySource(clock, random.Random(1).getrandbits)
        return cls(clock, metadata, MemoryObjectStore(clock), MemoryTables(clock), registered.server, keys)

    async def stream(self, name: str = "orders", **configs: str) -> Stream:
        named = {key.replace("__", "."): value for key, value in configs.items()}
        return await self.metadata.streams.create(
            StreamSpec(name=name, partition_count=1, configs={"table.freshness_ms": "100", **named})
        )

    async def produce(self, stream: Stream, *batches: bytes) -> str:
        sealed = wal_writer.seal(
            [Part(stream.id.bytes, 0, list(batches))], node_id=self.server.node_id, server_epoch=self.server.epoch
        )
        key, commits, at = self.keys.next(), [], sealed.positions[0]
        await self.store.put(key, [sealed.buffer])
        for batch in batches:
            commits.append(BatchCommit(stream.partition(0), at, len(batch), 1, self.clock.now_ms()))
            at += len(batch)
        await self.metadata.log.commit(
            ObjectCommit(token=key, server=self.server, size=len(sealed.buffer), batches=commits)
        )
        return key

    def batch(self, value: bytes, *, is_odd: bool = False) -> bytes:
        """A batch of one record; an odd one has a header key that is no UTF-8: legal for Kafka, kept raw by compaction."""
        headers = [("\udcff\udcfe", b"x")] if is_odd else []
        return record_codec.encode([record_codec.Record(value=value, timestamp=self.clock.now_ms(), headers=headers)])

    async def compactor(self, runner: Any = None) -> Compactor:
        self.worker_count += 1
        name = f"worker-{self.worker_count}"
        registered = await self.metadata.servers.register(name, zone=None, endpoints={}, version="1", timeout_ms=10_000)
        tables: Any = self.tables
        return Compactor(
            self.metadata,
            self.store,
            tables,
            runner or InProcess(self.store, self.bench()),
            registered.server,
            SETTINGS,
            clock=self.clock,
            random_source=random.Random(self.worker_count),
        )

    def bench(self) -> Workbench:
        return Workbench(clock=self.clock, random_bits=random.Random(self.worker_count).getrandbits)

    def sweeper(self) -> Sweeper:
        tables: Any = self.tables
        return Sweeper(self.metadata, self.store, tables, SETTINGS.sweep, self.clock)

    async def is_done(self) -> bool:
        waiting = await self.metadata.tasks.uncompacted(after=PartitionKey(0), limit=10)
        return not waiting and not await self.metadata.tasks.list()

    async def works(self, compactor: Compactor, until: Callable[[], Awaitable[bool]]) -> bool:
        """Plan and work (no upkeep) for at most 60 s, or until it holds; returns whether it does."""
        running = [asyncio.ensure_future(part.run()) for part in (compactor.planner, compactor.worker)]
        for _ in range(1_200):
            if is_over := await until():
                break
            self.clock.advance(50)
            await self.metadata.servers.heartbeat(compactor._server)
            await asyncio.sleep(0.05)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return is_over

    async def listed(self, prefix: str) -> list[str]:
        return [found.key async for found in self.store.list(prefix)]

    async def served(self, stream: Stream) -> dict[int, bytes | ObjectKind]:
        """What the index names: the bytes of each offset that is in a WAL-format object, else PARQUET. All of it must be there."""
        key = stream.partition(0)
        bounds = (await self.metadata.log.bounds([key]))[key]
        found: dict[int, bytes | ObjectKind] = {}
        for located in await self.metadata.log.slices([OffsetRange(key, bounds.start, bounds.end)]):
            piece = located.slice
            await self.store.size(located.object_key)
            for offset in range(piece.base_offset, piece.end_offset):
                found[offset] = ObjectKind.PARQUET
            if located.kind is ObjectKind.WAL:
                range_ = ByteRange(piece.position, piece.position + piece.length)
                (view,) = await self.store.read(located.object_key, [range_])
                found[piece.base_offset] = bytes(view)
        return found


async def dies_before_the_swap(lake: Lake) -> None:
    """A worker commits the table and is gone."""
    dying = await lake.compactor()
    died = asyncio.Event()

    async def no_swap(work: Work) -> None:
        died.set()
        await asyncio.Event().wait()

    dying.worker._committer._swap = no_swap  # type: ignore[method-assign]

    async def is_dead() -> bool:
        return died.is_set()

    assert await lake.works(dying, is_dead)


def test_a_worker_may_stay_away_for_months_between_table_and_swap() -> None:
    """The orphan sweep comes before the next claim, again and again: nothing of the open task is taken."""

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        odd = lake.batch(b"2", is_odd=True)
        await lake.produce(stream, lake.batch(b"1"), odd)
        await dies_before_the_swap(lake)
        written = {*await lake.listed("kept/"), *[key for key in await lake.listed("table/") if "/data/" in key]}
        assert len(written) == 2
        for _ in range(3):
            lake.clock.advance(60 * DAY_MS)
            await lake.sweeper().sweep_orphans()
            await lake.metadata.log.maintain(entry_count_min=0)

        assert written <= {*await lake.listed("kept/"), *await lake.listed("table/")}
        assert await lake.works(await lake.compactor(), lake.is_done)
        assert await lake.served(stream) == {0: ObjectKind.PARQUET, 1: odd}
        await lake.metadata.close()

    body()


def test_a_kept_object_that_was_deleted_under_an_open_task_is_written_anew_from_the_wal() -> None:
    """What a program before ownership left behind: the sweep has deleted the kept object, the table has the task's rows."""

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        batches = [lake.batch(b"%d" % number, is_odd=number in (1, 2, 4)) for number in range(6)]
        await lake.produce(stream, *batches[:2])
        await lake.produce(stream, *batches[2:])
        await dies_before_the_swap(lake)
        lost = await lake.listed("kept/")
        await lake.store.delete(lost)
        lake.clock.advance(DAY_MS)

        assert await lake.works(await lake.compactor(), lake.is_done)
        served = await lake.served(stream)
        assert served[0] is served[3] is served[5] is ObjectKind.PARQUET
        assert served[1] == batches[1] + batches[2]
        assert served[4] == batches[4]
        assert not set(lost) & set(await lake.listed("kept/"))
        await lake.metadata.close()

    body()


def test_offsets_that_were_trimmed_meanwhile_are_not_written_anew() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        odd = [lake.batch(b"%d" % number, is_odd=True) for number in range(4)]
        await lake.produce(stream, *odd[:2])
        await lake.produce(stream, *odd[2:])
        await dies_before_the_swap(lake)
        await lake.store.delete(await lake.listed("kept/"))
        await lake.metadata.log.trim(stream.partition(0), 2)
        lake.clock.advance(DAY_MS)

        assert await lake.works(await lake.compactor(), lake.is_done)
        assert await lake.served(stream) == {2: odd[2] + odd[3], 3: ObjectKind.PARQUET}
        await lake.metadata.close()

    body()


@pytest.mark.parametrize("kind", [Fenced, Conflict, NotFound, Corrupt, Denied])
def test_a_swap_that_can_never_succeed_is_set_aside_with_an_alarm(
    kind: type[BearlakeError], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bearlake.compaction")
    counts: list[int] = []

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        wal = await lake.produce(stream, lake.batch(b"1"))
        compactor = await lake.compactor()

        async def refused(work: Work) -> None:
            counts.append(work.task.attempt_count)
            raise kind("it can never be")

        swap = compactor.worker._committer._swap
        compactor.worker._committer._swap = refused  # type: ignore[method-assign]

        async def is_aside() -> bool:
            return [task.state for task in await lake.metadata.tasks.list()] == [TaskState.ASIDE]

        assert await lake.works(compactor, is_aside)
        assert counts == [0, 1, 2]
        # Readers still have it, moved out of the object that others share; an operator lets it be tried again.
        (kept,) = await lake.listed("kept/")
        assert wal != kept
        assert list(await lake.served(stream)) == [0]
        (task,) = await lake.metadata.tasks.list()
        assert "it can never be" in task.error
        compactor.worker._committer._swap = swap  # type: ignore[method-assign]
        await lake.metadata.tasks.retry(task.id)
        assert await lake.works(compactor, lake.is_done)
        assert await lake.served(stream) == {0: ObjectKind.PARQUET}
        await lake.metadata.close()

    body()

    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == ["a compaction task was set aside"]


def test_a_lost_data_file_of_a_committed_task_is_blamed_and_its_records_stay_in_the_wal() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        await lake.produce(stream, lake.batch(b"1"))
        await dies_before_the_swap(lake)
        await lake.store.delete([key for key in await lake.listed("table/") if "/data/" in key])
        lake.clock.advance(DAY_MS)

        async def is_aside() -> bool:
            return [task.state for task in await lake.metadata.tasks.list()] == [TaskState.ASIDE]

        assert await lake.works(await lake.compactor(), is_aside)
        assert list(await lake.served(stream)) == [0]
        await lake.metadata.close()

    body()


class Unanswered:
    """A runner for which the objects of one stream never answer."""

    def __init__(self, inner: InProcess, stream: Stream) -> None:
        self._inner = inner
        self._stream = stream

    async def run(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        if any(item.stream_id == self._stream.id for item in items):
            raise Unavailable("a prefix of the object store is down")
        return await self._inner.run(items)


def test_a_stream_whose_objects_do_not_answer_holds_up_no_other() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        bad, good = await lake.stream("bad"), await lake.stream("good")
        await lake.produce(bad, lake.batch(b"1"))
        await lake.produce(good, lake.batch(b"2"))
        compactor = await lake.compactor()
        compactor.worker._runner = Unanswered(InProcess(lake.store, lake.bench()), bad)  # type: ignore[assignment]

        async def is_good_done() -> bool:
            return (await lake.metadata.tasks.compacted([good.partition(0)]))[good.partition(0)] == 1

        assert await lake.works(compactor, is_good_done)
        (task,) = await lake.metadata.tasks.list()
        assert (task.stream_number, task.state, task.attempt_count) == (bad.number, TaskState.OPEN, 0)
        await lake.metadata.close()

    body()


class Unreadable:
    """Tables of which some streams' fail, whatever is asked."""

    def __init__(self, inner: MemoryTables, names: Collection[str], error: BearlakeError) -> None:
        self._inner = inner
        self._names = names
        self._error = error

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(stream: Stream, *arguments: Any, **named: Any) -> Any:
            if stream.name in self._names:
                raise self._error
            return await method(stream, *arguments, **named)

        return call


FAULTS = [Corrupt("damaged"), Denied("no"), Unavailable("its catalog"), Conflict("overtaken"), Fenced("what")]


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_a_table_that_cannot_be_read_stops_the_upkeep_of_its_stream_alone(
    error: BearlakeError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bearlake.compaction")

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        streams = [await lake.stream(name) for name in ("a", "b", "c")]
        tables: Any = Unreadable(lake.tables, ["a"], error)
        upkeep = TableUpkeep(lake.metadata, tables, SETTINGS.sweep, TableSettings(), lake.clock)
        for _ in range(3):
            await upkeep.run_once()

        assert set(lake.tables.tables) == {stream.number for stream in streams[1:]}
        await lake.metadata.close()

    body()

    assert [vars(record)["subject"] for record in caplog.records] == ["a"]


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_data_files_stay_while_their_table_cannot_be_read_and_others_go(error: BearlakeError) -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        streams = [await lake.stream(name, table__on_delete="drop") for name in ("a", "b")]
        for stream in streams:
            await lake.produce(stream, lake.batch(b"1"))
        assert await lake.works(await lake.compactor(), lake.is_done)
        files = {
            stream.name: [key for key in await lake.listed("table/") if f"/{stream.name}-" in key] for stream in streams
        }
        for stream in streams:
            await lake.metadata.log.trim(stream.partition(0), 1)
            await lake.metadata.streams.delete(stream.name)
            await lake.tables.drop(stream)
        orphans = [key.replace(".parquet", "0.parquet") for keys in files.values() for key in keys]
        for key in orphans:
            await lake.store.put(key, [b"left behind"])
        while await lake.metadata.log.maintain(entry_count_min=0):
            pass
        lake.clock.advance(DAY_MS)
        sweeper = lake.sweeper()
        sweeper._tables = Unreadable(lake.tables, ["a"], error)  # type: ignore[assignment]
        await sweeper.sweep_files()
        await sweeper.sweep_orphans()

        left = [key for key in await lake.listed("table/") if "/data/" in key]
        assert len(files["a"]) == len(files["b"]) == 1
        assert left == sorted([files["a"][0], orphans[0]])
        await lake.metadata.close()

    body()


def test_retention_goes_on_behind_a_stream_that_fails() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        streams = [await lake.stream(name, retention__bytes="0") for name in ("a", "b")]
        for stream in streams:
            await lake.produce(stream, lake.batch(b"1"))
            await lake.produce(stream, lake.batch(b"2"))
        inner = lake.metadata.log

        class Damaged:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            async def retain(self, keys: Sequence[PartitionKey], **rules: Any) -> Any:
                if keys[0] == streams[0].partition(0):
                    raise Corrupt("a damaged page")
                return await inner.retain(keys, **rules)

        lake.metadata.log = Damaged()  # type: ignore[assignment]
        await Retention(lake.metadata, SETTINGS.sweep).run_once()

        bounds = await inner.bounds([stream.partition(0) for stream in streams])
        assert [bounds[stream.partition(0)].start > 0 for stream in streams] == [False, True]
        await lake.metadata.close()

    body()


def test_a_jobs_own_conflict_is_not_taken_for_anothers_turn(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "bearlake.compaction")

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()

        async def job() -> None:
            raise Conflict("of the job itself")

        turns = take_turns("job", lake.metadata.leases, lake.server, job, pause_ms=1_000, retry_pause_ms=100)
        running = asyncio.ensure_future(turns)
        await asyncio.sleep(5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await lake.metadata.close()

    body()

    assert [record.getMessage() for record in caplog.records] == ["upkeep failed, trying again"]


def test_upkeep_reaches_streams_behind_any_gap_of_numbers() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        first = await lake.stream("first")
        skip_numbers(lake.metadata, 1_000_000)
        last = await lake.stream("last")
        tables: Any = lake.tables
        settings = replace(SETTINGS.sweep, page_count=1)
        await TableUpkeep(lake.metadata, tables, settings, TableSettings(), lake.clock).run_once()

        assert last.number == 1_000_002
        assert set(lake.tables.tables) == {first.number, last.number}
        await lake.metadata.close()

    body()
