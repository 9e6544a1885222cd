# ruff: noqa: SLF001 - steps of a worker are taken one by one, without its loop
"""Effects of one fault (I11): stores that do not answer for one stream, unreadable tables, gaps in stream numbers."""

import asyncio
import logging
import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bearlake.compaction.claims import Claims
from bearlake.compaction.leased_jobs import run_with_lease
from bearlake.compaction.retention import Retention
from bearlake.compaction.runner import InProcess
from bearlake.compaction.sweeper import Sweeper
from bearlake.compaction.upkeep import TableUpkeep
from bearlake.errors import BearlakeError, Conflict, Corrupt, Denied, Fenced, Unavailable
from bearlake.metadata.compaction import OffsetRange, TaskKind, TaskOffer, TaskState
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.metadata.model import (
    Stream,
)
from bearlake.table.settings import TableSettings
from fixtures import by_name
from fixtures.failing_runner import FailingRunner
from fixtures.virtual_lake import DAY_MS, SETTINGS, Lake
from simulator.deployment import skip_numbers
from simulator.loop import virtual_time
from simulator.tables import MemoryTables


def test_a_stream_whose_objects_do_not_answer_delays_no_other_stream() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        bad, good = await lake.stream("bad"), await lake.stream("good")
        await lake.produce(bad, lake.batch(b"1"))
        await lake.produce(good, lake.batch(b"2"))
        compactor = await lake.compactor()
        down = Unavailable("a prefix of the object store is down")
        compactor.worker._runner = FailingRunner(InProcess(lake.store, lake.bench()), bad, down)  # type: ignore[assignment]

        async def is_good_done() -> bool:
            return (await lake.metadata.tasks.compacted([good.partition(0)]))[good.partition(0)] == 1

        assert await lake.works(compactor, is_good_done)
        (task,) = await lake.metadata.tasks.list()
        assert (task.stream_number, task.state, task.attempt_count) == (bad.number, TaskState.OPEN, 0)
        await lake.metadata.close()

    body()


class Unreadable:
    """Tables that fail every call for some streams."""

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
def test_an_unreadable_table_stops_the_upkeep_of_its_stream_only(
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
def test_data_files_stay_while_their_table_is_unreadable_and_files_of_other_tables_are_deleted(
    error: BearlakeError,
) -> None:
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
            await lake.metadata.streams.delete(stream.number)
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


def test_retention_continues_after_a_stream_that_fails() -> None:
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

            async def retain(self, stream: Stream, indexes: Sequence[int], **rules: Any) -> Any:
                if stream.number == streams[0].number:
                    raise Corrupt("a damaged page")
                return await inner.retain(stream, indexes, **rules)

        lake.metadata.log = Damaged()  # type: ignore[assignment]
        await Retention(lake.metadata, SETTINGS.sweep).run_once()

        bounds = await inner.bounds([stream.partition(0) for stream in streams])
        assert [bounds[stream.partition(0)].start > 0 for stream in streams] == [False, True]
        await lake.metadata.close()

    body()


def test_retention_that_was_decided_before_a_change_is_decided_again_in_the_next_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "bearlake.compaction")

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream("a", retention__bytes="0")
        for value in (b"1", b"2"):
            await lake.produce(stream, lake.batch(value))
        inner, tried = lake.metadata.log, []

        class Late:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            async def retain(self, decided: Stream, indexes: Sequence[int], **rules: Any) -> Any:
                if not tried:  # the records must stay after all: the change precedes the request
                    keep = {"retention.bytes": "-1"}
                    await by_name.alter(lake.metadata, "a", set_configs=keep, unset_configs=())
                tried.append(rules)
                return await inner.retain(decided, indexes, **rules)

        lake.metadata.log = Late()  # type: ignore[assignment]
        retention = Retention(lake.metadata, SETTINGS.sweep)
        starts = []
        for _ in range(2):
            await retention.run_once()
            starts.append((await inner.bounds([stream.partition(0)]))[stream.partition(0)].start)

        assert starts == [0, 0]
        assert [rules["size_max"] for rules in tried] == [0, None]
        assert not caplog.records  # a change is not a failure
        await lake.metadata.close()

    body()


def test_a_jobs_own_conflict_does_not_count_as_a_lost_lease(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "bearlake.compaction")

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()

        async def job() -> None:
            raise Conflict("of the job itself")

        turns = run_with_lease("job", lake.metadata.leases, lake.server, job, pause_ms=1_000, retry_pause_ms=100)
        running = asyncio.ensure_future(turns)
        await asyncio.sleep(5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await lake.metadata.close()

    body()

    assert [record.getMessage() for record in caplog.records] == ["upkeep failed; retrying"]


def test_upkeep_reaches_streams_after_any_gap_of_numbers() -> None:
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


class OneUnreadable:
    """An object register or a log that fails for one stream."""

    def __init__(self, inner: Any, number: int) -> None:
        self._inner = inner
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def data_files(self, stream_number: int, **options: int) -> Any:
        if stream_number == self._number:
            raise Corrupt("damaged")
        return await self._inner.data_files(stream_number, **options)


def test_a_failing_stream_is_no_longer_reported_after_its_deletion_or_the_planners_stop() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        compactor = await lake.compactor()
        planner = compactor.planner
        planner._merges._settings = replace(SETTINGS.merge, is_enabled=True)
        objects: Any = OneUnreadable(lake.metadata.objects, stream.number)
        planner._merges._objects = objects

        async def fails() -> bool:
            return planner._isolation.failing == [f"merges of stream {stream.number}"]

        async def is_over() -> bool:
            return not planner._isolation.failing

        async def deleted() -> bool:
            if await fails():
                await lake.metadata.streams.delete(stream.number)
            return await is_over() and not await lake.metadata.streams.list()

        await lake.produce(stream, lake.batch(b"1"))
        assert await lake.works(compactor, fails)
        assert await is_over()  # it no longer plans
        await lake.produce(stream, lake.batch(b"2"))
        assert await lake.works(compactor, deleted)
        await lake.metadata.close()

    body()


def test_orphans_of_an_unreadable_table_are_reported_until_a_complete_listing_succeeds() -> None:
    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        streams = [await lake.stream(name) for name in ("a", "b")]
        for stream in streams:
            await lake.tables.ensure(stream)
            for number in range(2):
                location = lake.tables.tables[stream.number].location_key
                await lake.store.put(f"{location}/data/{number:016x}-1-0.parquet", [b"orphan"])
        lake.clock.advance(DAY_MS)
        tables: Any = Unreadable(lake.tables, ["a"], Corrupt("damaged"))
        sweeper = Sweeper(lake.metadata, lake.store, tables, replace(SETTINGS.sweep, page_count=2), lake.clock)
        failing = []
        for _ in range(4):
            await sweeper.sweep_orphans()
            failing.append(list(sweeper._orphan_table_isolation.failing))

        assert failing == [["a"]] * 4
        tables._names = []
        for _ in range(3):
            await sweeper.sweep_orphans()
        assert sweeper._orphan_table_isolation.failing == []
        await lake.metadata.close()

    body()


@pytest.mark.parametrize("seed", range(4))
def test_a_task_whose_claim_was_not_answered_is_released_however_long_the_store_is_away(seed: int) -> None:
    """The claim takes effect at the last possible moment: when the next write begins."""

    @virtual_time
    async def body() -> None:
        lake = await Lake.open()
        stream = await lake.stream()
        await lake.produce(stream, lake.batch(b"1"))
        lease = await lake.metadata.leases.acquire("compaction/planner", lake.server)
        range_ = OffsetRange(stream.partition(0), 0, 1)
        offer = TaskOffer(
            kind=TaskKind.COMPACT, stream_number=stream.number, ranges=[range_], size_bytes=1, record_count=1, age_ms=0
        )
        await lake.metadata.tasks.offer([offer], lease)
        compactor, other = await lake.compactor(), await lake.compactor()
        faulty = FaultyMetadata(lake.metadata, MetadataFaults(late_rate=1.0), random.Random(seed))
        claims = Claims(faulty.tasks, compactor.worker._server)
        with pytest.raises(Unavailable):
            await faulty.tasks.claim(compactor.worker._server, limit=1, bytes_max=1 << 30)
        claims.record_unanswered()
        faulty.misbehave(MetadataFaults(error_rate=1.0))
        for _ in range(3):
            await asyncio.sleep(600)
            with pytest.raises(Unavailable):
                await claims.release_due()
        assert not claims.is_empty
        faulty.misbehave(MetadataFaults())
        await claims.release_due()

        assert claims.is_empty
        assert len(await lake.metadata.tasks.claim(other.worker._server, limit=1, bytes_max=1 << 30)) == 1
        await lake.metadata.close()

    body()
