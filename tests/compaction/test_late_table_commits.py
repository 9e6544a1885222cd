"""Table commits that come late: a worker prepares, stands still on its way to the table, is overtaken, and goes on.

Promised to readers of the table: each record that was acknowledged and not removed is a row once, and the files of the newest snapshot
are there. Promised to consumers: what the index names is there. The worker stands still at each point at which it may.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from bearlake.compaction.commit import Work
from bearlake.compaction.ensuring import StreamDeleted, ensure_table
from bearlake.compaction.service import Compactor
from bearlake.compaction.upkeep import LOOK_COUNT, TableUpkeep
from bearlake.errors import Fenced, Unavailable
from bearlake.metadata.compaction import OffsetRange, TaskKind, TaskOffer
from bearlake.metadata.model import Lease, Stream
from bearlake.table import CommitCheck, unchecked
from bearlake.table.model import TableCommit, TableState
from bearlake.table.settings import TableSettings
from bearlake.testing.loop import virtual_time
from bearlake.testing.tables import Look, MemoryTables, Replacement, commit_to
from fixtures.virtual_lake import DAY_MS, SETTINGS, Lake

LOAD, ASK, REPLACE, ENSURE = (
    "before it loads the table",
    "before it asks",
    "before its request is executed",
    "before it makes the table",
)
POINTS = (LOAD, ASK, REPLACE)


class Gate:
    """Tables of a worker that stands still at a point until `open`."""

    def __init__(self, inner: MemoryTables, point: str) -> None:
        self._inner = inner
        self._point = point
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(
        self, stream: Stream, commit: TableCommit, *, closed_tasks: Collection[int], check: CommitCheck = unchecked
    ) -> TableState:
        async def ask() -> None:
            await self._stand(ASK)
            await check()

        return await commit_to(self, stream, commit, closed_tasks, ask)

    async def look(self, stream: Stream) -> Look:
        await self._stand(LOAD)
        return await self._inner.look(stream)

    async def replace(self, stream: Stream, seen: Look, by: Replacement) -> TableState:
        await self._stand(REPLACE)
        return await self._inner.replace(stream, seen, by)

    async def ensure(self, stream: Stream) -> TableState:
        await self._stand(ENSURE)
        return await self._inner.ensure(stream)

    async def _stand(self, point: str) -> None:
        if point == self._point and not self.open.is_set():
            self.reached.set()
            await self.open.wait()


class Late:
    """A worker that stands still in its table commit."""

    def __init__(self, compactor: Compactor, works: list[Work], gate: Gate) -> None:
        self.compactor = compactor
        self.works = works
        self._gate = gate
        self._commit = asyncio.create_task(compactor.worker._commit_round(works))

    async def stands_still(self, lake: Lake) -> None:
        """Until it does; then it is taken for dead."""
        await self._gate.reached.wait()
        assert self.compactor.worker._server is not None
        await lake.metadata.servers.leave(self.compactor.worker._server)

    async def wakes_up(self) -> None:
        """It goes on, to the end of its round."""
        self._gate.open.set()
        await self._commit


async def offer(lake: Lake, task: TaskOffer) -> None:
    lease: Lease = await lake.metadata.leases.acquire("compaction/planner", lake.server)
    assert await lake.metadata.tasks.offer([task], lease)


async def offer_compaction(lake: Lake, stream: Stream, start: int, end: int) -> None:
    range_ = OffsetRange(stream.partition(0), start, end)
    await offer(
        lake,
        TaskOffer(
            kind=TaskKind.COMPACT,
            stream_number=stream.number,
            ranges=[range_],
            size_bytes=10,
            record_count=end - start,
            age_ms=0,
        ),
    )


async def offer_merge(lake: Lake, stream: Stream) -> None:
    files = await lake.metadata.objects.data_files(stream.number)
    keys = [entry.object.key for entry in files]
    await offer(
        lake,
        TaskOffer(
            kind=TaskKind.MERGE, stream_number=stream.number, inputs=keys, size_bytes=10, record_count=2, age_ms=0
        ),
    )


async def takes(compactor: Compactor) -> list[Work]:
    """The worker claims all tasks and writes their files."""
    return await compactor.worker._run_round(await compactor.worker._claim())


async def does(lake: Lake) -> Compactor:
    """A new worker does all open tasks, or does with them what it can."""
    compactor = await lake.compactor()
    await compactor.worker._commit_round(await takes(compactor))
    await compactor.worker._settle_debts()
    return compactor


async def late(lake: Lake, point: str) -> Late:
    """A worker that claims all tasks, writes, prepares, stands still, and is taken for dead."""
    compactor = await lake.compactor()
    works = await takes(compactor)
    assert works
    gate = Gate(lake.tables, point)
    compactor.worker._committer._tables = gate  # type: ignore[assignment]
    found = Late(compactor, works, gate)
    await found.stands_still(lake)
    return found


async def with_two_files(lake: Lake, **configs: str) -> Stream:
    """A stream whose records 0 and 1 are in a data file each."""
    stream = await lake.stream(**configs)
    for offset in range(2):
        await lake.produce(stream, lake.batch(b"%d" % offset))
        await offer_compaction(lake, stream, offset, offset + 1)
        await does(lake)
    assert len(await lake.metadata.objects.data_files(stream.number)) == 2
    return stream


async def rows(lake: Lake, stream: Stream) -> int:
    """Rows of the newest snapshot, whose files must all be there."""
    files = lake.tables.tables[stream.number].files
    for key in files:
        await lake.store.size(key)
    return sum(file.row_count for file in files.values())


async def index_files(lake: Lake, stream: Stream) -> set[str]:
    """Data files that the index names, which must all be there."""
    keys = {entry.object.key for entry in await lake.metadata.objects.data_files(stream.number)}
    for key in keys:
        await lake.store.size(key)
    return keys


async def sweep_all(lake: Lake) -> None:
    lake.clock.advance(DAY_MS)
    await lake.sweeper().sweep_orphans()


def scene(body: Callable[[Lake], Awaitable[None]]) -> None:
    """Run a test's body in virtual time."""

    @virtual_time
    async def run() -> None:
        lake = await Lake.open()
        await body(lake)
        await lake.metadata.close()

    run()


@pytest.mark.parametrize("point", POINTS)
def test_a_merge_whose_file_was_forbidden_is_blamed_and_the_former_worker_loses_nothing(point: str) -> None:
    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake)
        await offer_merge(lake, stream)
        former = await late(lake, point)
        other = await lake.compactor()
        works = await takes(other)
        written = [one.file.key for item in works[0].result.items for one in item.files]
        assert await lake.metadata.objects.forbid(written) == set(written)
        await other.worker._commit_round(works)

        (task,) = await lake.metadata.tasks.list()
        assert (task.attempt_count, "write it anew" in task.error) == (1, True)
        await former.wakes_up()
        assert await rows(lake, stream) == 2
        lake.clock.advance(DAY_MS)
        await does(lake)
        assert not await lake.metadata.tasks.list()
        assert await rows(lake, stream) == 2
        assert await index_files(lake, stream) == set(lake.tables.tables[stream.number].files)
        await sweep_all(lake)
        assert await rows(lake, stream) == 2

    scene(body)


@pytest.mark.parametrize("point", POINTS)
def test_a_merge_that_is_dropped_for_a_trim_cannot_be_committed_later(point: str) -> None:
    """The table has its inputs still, so nothing but the fence and the claim keep the former worker out."""

    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake)
        await offer_merge(lake, stream)
        former = await late(lake, point)
        await lake.metadata.log.trim(stream.partition(0), 1)
        await does(lake)

        assert not await lake.metadata.tasks.list()
        await former.wakes_up()
        assert await rows(lake, stream) == 2
        await sweep_all(lake)
        assert await rows(lake, stream) == 2
        assert len(lake.tables.tables[stream.number].files) == 2
        assert {key for key in await lake.listed("table/") if "/data/" in key} == set(
            lake.tables.tables[stream.number].files
        )

    scene(body)


def test_a_merge_that_was_committed_while_it_was_being_dropped_is_taken_over() -> None:
    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake)
        await offer_merge(lake, stream)
        former = await late(lake, REPLACE)
        await lake.metadata.log.trim(stream.partition(0), 1)
        other = await lake.compactor()
        fence = lake.tables.fence

        async def just_before(stream: Stream) -> TableState | None:
            await former.wakes_up()
            return await fence(stream)

        other.worker._committer._tables = Intercepted(lake.tables, fence=just_before)  # type: ignore[assignment]
        await takes(other)

        assert not await lake.metadata.tasks.list()
        (key,) = lake.tables.tables[stream.number].files
        assert await index_files(lake, stream) == {key}
        assert await rows(lake, stream) == 2
        assert 1 in await lake.served(stream)

    scene(body)


class Intercepted:
    """Tables of which some methods are replaced."""

    def __init__(self, inner: Any, **methods: Any) -> None:
        self._inner = inner
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._inner, name)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_merge_whose_fence_was_not_answered_is_not_dropped(is_done: bool) -> None:
    """The reply is lost before or after the effect: nothing is deleted, and the next worker does it again."""

    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake)
        await offer_merge(lake, stream)
        former = await late(lake, REPLACE)
        await lake.metadata.log.trim(stream.partition(0), 1)
        before = await lake.listed("table/")
        other = await lake.compactor()

        async def lost(stream: Stream) -> TableState | None:
            if is_done:
                await lake.tables.fence(stream)
            raise Unavailable("the reply is lost")

        other.worker._committer._tables = Intercepted(lake.tables, fence=lost)  # type: ignore[assignment]
        await takes(other)

        assert len(await lake.metadata.tasks.list()) == 1
        assert await lake.listed("table/") == before
        await other.worker._settle_debts()
        lake.clock.advance(DAY_MS)
        await does(lake)
        assert not await lake.metadata.tasks.list()
        await former.wakes_up()
        await sweep_all(lake)
        assert await rows(lake, stream) == 2

    scene(body)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_what_was_written_for_a_merge_stays_until_its_end_is_known(is_done: bool) -> None:
    """The reply to `cancel` is lost before or after the effect."""

    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake)
        await offer_merge(lake, stream)
        former = await late(lake, REPLACE)
        await lake.metadata.log.trim(stream.partition(0), 1)
        before = await lake.listed("table/")
        other = await lake.compactor()
        tasks = lake.metadata.tasks

        async def lost(claim: Any) -> None:
            if is_done:
                await tasks.cancel(claim)
            raise Unavailable("the reply is lost")

        other.worker._metadata = Intercepted(lake.metadata, tasks=Intercepted(tasks, cancel=lost))  # type: ignore[assignment]
        await takes(other)

        assert await lake.listed("table/") == before
        await other.worker._settle_debts()
        await former.wakes_up()
        lake.clock.advance(DAY_MS)
        if not is_done:
            await does(lake)
        assert not await tasks.list()
        await sweep_all(lake)
        assert await rows(lake, stream) == 2
        assert len(await lake.listed("table/")) == 2

    scene(body)


@pytest.mark.parametrize("point", POINTS)
def test_the_kept_table_of_a_deleted_stream_lists_no_file_that_was_swept(point: str) -> None:
    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake)
        await lake.produce(stream, lake.batch(b"2"))
        await offer_compaction(lake, stream, 2, 3)
        former = await late(lake, point)
        await lake.metadata.streams.delete(stream.number)
        await does(lake)
        assert not await lake.metadata.tasks.list()
        await sweep_all(lake)
        await former.wakes_up()

        assert await rows(lake, stream) == 2
        assert len(await lake.listed("table/")) == 2
        state = lake.tables.tables[stream.number].version
        await sweep_all(lake)
        assert lake.tables.tables[stream.number].version == state  # nothing is left to fence for

    scene(body)


def test_a_file_that_a_late_commit_brought_before_the_sweep_stays_with_the_kept_table() -> None:
    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake)
        await lake.produce(stream, lake.batch(b"2"))
        await offer_compaction(lake, stream, 2, 3)
        former = await late(lake, REPLACE)
        await lake.metadata.streams.delete(stream.number)
        await does(lake)
        await former.wakes_up()
        for _ in range(2):
            await sweep_all(lake)
            assert await rows(lake, stream) == 3

    scene(body)


def upkeep_of(lake: Lake) -> TableUpkeep:
    tables: Any = lake.tables
    return TableUpkeep(lake.metadata, tables, SETTINGS.sweep, TableSettings(), lake.clock)


@pytest.mark.parametrize("point", POINTS)
def test_the_table_of_a_deleted_stream_is_not_made_anew(point: str) -> None:
    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake, table__on_delete="drop")
        await lake.produce(stream, lake.batch(b"2"))
        await offer_compaction(lake, stream, 2, 3)
        former = await late(lake, point)
        await lake.metadata.streams.delete(stream.number)
        await upkeep_of(lake).run_once()
        assert not lake.tables.tables
        await former.wakes_up()

        assert not lake.tables.tables

    scene(body)


def test_a_table_that_was_made_while_its_stream_was_deleted_is_dropped_again() -> None:
    async def body(lake: Lake) -> None:
        stream = await lake.stream(table__on_delete="drop")
        gate: Any = Gate(lake.tables, ENSURE)
        making = asyncio.create_task(ensure_table(stream, lake.metadata.streams, gate))
        await gate.reached.wait()
        await lake.metadata.streams.delete(stream.number)
        gate.open.set()
        with pytest.raises(StreamDeleted):
            await making

        assert not lake.tables.tables

    scene(body)


def test_upkeep_drops_a_table_that_a_catalog_makes_very_late() -> None:
    """However many rounds after the stream was deleted, and whoever asked for it."""

    async def body(lake: Lake) -> None:
        streams = [await lake.stream(f"s{number}", table__on_delete="drop") for number in range(30)]
        for stream in streams:
            await lake.metadata.streams.delete(stream.number)
        upkeep = upkeep_of(lake)
        for _ in range(LOOK_COUNT + 1):
            await upkeep.run_once()
        for stream in streams:
            await lake.tables.ensure(stream)
        for _ in range(LOOK_COUNT):
            await upkeep.run_once()

        assert not lake.tables.tables

    scene(body)


@pytest.mark.parametrize("point", POINTS)
def test_a_table_that_was_switched_off_and_dropped_is_not_made_anew(point: str) -> None:
    async def body(lake: Lake) -> None:
        stream = await with_two_files(lake)
        await lake.produce(stream, lake.batch(b"2"))
        await offer_compaction(lake, stream, 2, 3)
        former = await late(lake, point)
        now = await lake.metadata.streams.get(stream.name)
        await lake.metadata.streams.alter(
            now.number, set_configs={"table.enable": "false"}, unset_configs=(), version=now.version
        )
        await lake.tables.drop(stream)
        await does(lake)
        await former.wakes_up()

        assert not lake.tables.tables
        assert len(await index_files(lake, stream)) == 3
        assert not await lake.metadata.tasks.list()

    scene(body)


@pytest.mark.parametrize("point", POINTS)
def test_a_table_that_was_dropped_under_a_live_worker_is_made_anew_for_a_living_stream(point: str) -> None:
    async def body(lake: Lake) -> None:
        stream = await lake.stream()
        await lake.produce(stream, lake.batch(b"0"))
        await offer_compaction(lake, stream, 0, 1)
        compactor = await lake.compactor()
        works = await takes(compactor)
        gate = Gate(lake.tables, point)
        compactor.worker._committer._tables = gate  # type: ignore[assignment]
        commit = asyncio.create_task(compactor.worker._commit_round(works))
        await gate.reached.wait()
        await lake.tables.drop(stream)
        gate.open.set()
        await commit

        assert await rows(lake, stream) == 1
        assert not await lake.metadata.tasks.list()

    scene(body)


def test_of_tasks_that_are_committed_together_only_the_one_that_was_overtaken_fails() -> None:
    async def body(lake: Lake) -> None:
        stream = await lake.stream(partition_count=2)
        for index in range(2):
            await lake.produce(stream, lake.batch(b"%d" % index), index=index)
            range_ = OffsetRange(stream.partition(index), 0, 1)
            await offer(
                lake,
                TaskOffer(
                    kind=TaskKind.COMPACT,
                    stream_number=stream.number,
                    ranges=[range_],
                    size_bytes=10,
                    record_count=1,
                    age_ms=0,
                ),
            )
        compactor = await lake.compactor()
        works = await takes(compactor)
        gate = Gate(lake.tables, ASK)
        compactor.worker._committer._tables = gate  # type: ignore[assignment]
        commit = asyncio.create_task(compactor.worker._committer.commit(stream, works))
        await gate.reached.wait()
        await lake.metadata.tasks.release([works[0].claim])
        gate.open.set()
        errors = await commit

        assert {task: type(error) for task, error in errors.items()} == {works[0].task.id: Fenced}
        assert dict(lake.tables.tables[stream.number].marks.applied) == {works[1].task.id: works[1].claim.epoch}

    scene(body)


def test_a_table_commit_that_was_given_up_cannot_begin_another_try() -> None:
    """Its thread may go on when its caller has stopped waiting; the claim is still the newest then."""

    async def body(lake: Lake) -> None:
        stream = await lake.stream()
        await lake.produce(stream, lake.batch(b"0"))
        await offer_compaction(lake, stream, 0, 1)
        compactor = await lake.compactor()
        works = await takes(compactor)
        asked: list[CommitCheck] = []

        async def given_up(*_: Any, check: CommitCheck, **__: Any) -> TableState:
            asked.append(check)
            await check()
            raise Unavailable("no answer within the deadline")

        committer = compactor.worker._committer
        committer._tables = Intercepted(lake.tables, commit=given_up)  # type: ignore[assignment]
        errors = await committer.commit(stream, works)

        assert [type(error) for error in errors.values()] == [Unavailable]
        await lake.metadata.tasks.check([works[0].claim])
        for check in asked:
            with pytest.raises(Fenced):
                await check()

    scene(body)
