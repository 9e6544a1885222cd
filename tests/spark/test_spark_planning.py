"""What a query reads: streams, offsets, tasks, and what it does when they are gone."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: install bearlake[spark]")

from bearlake.errors import Invalid
from bearlake.live.log_rows import LogRows
from bearlake.spark.filters import Pushed
from bearlake.spark.offsets import Offsets
from bearlake.spark.options import EARLIEST, LATEST, Bound, parse
from bearlake.spark.planning import DataLoss, Planner
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import ANONYMOUS
from fixtures.deployment import NOW_MS, append, batch_of
from fixtures.live_lake import LiveLake, live_lake
from fixtures.transactional import TransactionalWriter


async def stream(lake: LiveLake, name: str, *counts: int) -> StreamView:
    """A stream with so many records in its partitions, in batches of two, a second apart."""
    view = await lake.lake.streams.create(ANONYMOUS, name, len(counts), {})
    for index, count in enumerate(counts):
        for number in range(0, count, 2):
            batch = batch_of(*[b"value"] * min(2, count - number), timestamp=NOW_MS + 1_000 * number)
            await append(lake.lake.streams, view, batch, index=index)
    return view


def planner(lake: LiveLake, **options: Any) -> Planner:
    stores = lake.lake.stores
    given = {"subscribe": "orders", "dataDir": "/unused", **{key: str(value) for key, value in options.items()}}
    if options.keys() & {"subscribePattern", "assign"}:
        del given["subscribe"]
    return Planner(stores.metadata, LogRows(stores.metadata, stores.store), parse(given))


def ends(offsets: Offsets | None) -> dict[str, dict[int, int]]:
    assert offsets is not None
    return {name: dict(found.ends) for name, found in offsets.streams.items()}


async def tasks(
    plan: Planner, start: Offsets, end: Offsets, pushed: Pushed | None = None
) -> list[tuple[int, int, int]]:
    return [(task.index, task.start, task.end) for task in await plan.tasks(start, end, pushed or Pushed())]


async def test_a_batch_query_reads_from_the_start_to_the_last_stable_offset(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        await stream(lake, "orders", 4, 1)
        writer = await TransactionalWriter.of(lake.lake.streams, "orders")
        await writer.send(b"open")

        plan = planner(lake)
        start, end = await plan.beginning(Bound(EARLIEST)), await plan.ending()

        assert await tasks(plan, start, end) == [(0, 0, 4), (1, 0, 1)]
        pushed = Pushed(partitions=frozenset({0}), start=1, end=3)
        assert await tasks(plan, start, end, pushed) == [(0, 1, 3)]
        divided = await tasks(planner(lake, minPartitions=4), start, end)
        assert divided == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4), (1, 0, 1)]


async def test_offsets_and_times_say_where_a_query_begins_and_ends(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        await stream(lake, "orders", 6, 2)

        async def begins(**options: Any) -> dict[int, int]:
            return ends(await planner(lake, **options).beginning(Bound(LATEST)))["orders"]

        assert await begins() == {0: 6, 1: 2}
        assert await begins(startingOffsets="earliest") == {0: 0, 1: 0}
        assert await begins(startingOffsets='{"orders": {"0": 3, "1": -1}}') == {0: 3, 1: 2}
        assert await begins(startingTimestamp=NOW_MS) == {0: 0, 1: 0}
        late = {"startingTimestamp": NOW_MS + 1_500}
        with pytest.raises(Invalid, match="partition 1 of stream orders has no record at or after"):
            await begins(**late)
        assert await begins(**late, startingOffsetsByTimestampStrategy="latest") == {0: 2, 1: 2}
        by_time = planner(lake, endingOffsetsByTimestamp=f'{{"orders": {{"0": {NOW_MS + 3_000}}}}}')
        assert ends(await by_time.ending())["orders"] == {0: 4, 1: 2}
        with pytest.raises(Invalid, match="ends at offset 6, before 7"):
            await begins(startingOffsets='{"orders": {"0": 7}}')
        with pytest.raises(Invalid, match="does not read: returns"):
            await begins(startingOffsets='{"returns": {"0": 7}}')


async def test_a_micro_batch_stays_within_its_limits_and_reads_all_in_the_end(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await stream(lake, "orders", 60, 20)
        located = await lake.lake.stores.metadata.log.locate(view.stream.partition(0), 0, limit=1)
        assert located.slices[0].slice.record_count == 2

        for options, first in (
            ({"maxOffsetsPerTrigger": 8}, {0: 6, 1: 2}),
            ({"maxBytesPerTrigger": 4 * located.slices[0].slice.length}, {0: 6, 1: 2}),
            ({}, {0: 60, 1: 20}),
        ):
            plan = planner(lake, startingOffsets="earliest", **options)
            at = await plan.beginning(Bound(LATEST))
            steps = []
            while (end := await plan.latest(at)) is not None:
                steps.append(ends(end)["orders"])
                at = end
            assert steps[0] == first
            assert steps[-1] == {0: 60, 1: 20}
            assert len(steps) == (1 if not options else 10)


async def test_partitions_and_streams_that_are_new_are_read_from_their_beginning(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await stream(lake, "orders", 2)
        plan = planner(lake, subscribePattern="ord.*|new")
        start = await plan.beginning(Bound(LATEST))
        assert ends(start) == {"orders": {0: 2}}
        await lake.lake.stores.metadata.streams.add_partitions(view.stream.number, 2)
        await stream(lake, "new", 3)
        await stream(lake, "other", 3)

        end = await plan.latest(start)

        assert ends(end) == {"new": {0: 3}, "orders": {0: 2, 1: 0}}
        assert end is not None
        assert await tasks(plan, start, end) == [(0, 0, 3)]


async def test_assigned_partitions_are_the_only_ones(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        await stream(lake, "orders", 2, 3)
        plan = planner(lake, assign='{"orders": [1]}')
        assert ends(await plan.ending()) == {"orders": {1: 3}}
        with pytest.raises(Invalid, match="has the partitions 0 to 1"):
            await planner(lake, assign='{"orders": [2]}').ending()


async def test_retention_that_passes_a_query_fails_it_unless_it_may_lose_data(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await stream(lake, "orders", 6)
        strict, lenient = planner(lake), planner(lake, failOnDataLoss="false")
        start, end = await strict.beginning(Bound(EARLIEST)), await strict.ending()
        await lake.lake.stores.metadata.log.trim(view.stream.partition(0), 4)

        with pytest.raises(DataLoss, match=r"offsets \[0, 4\) of partition 0 of stream orders are gone"):
            await strict.tasks(start, end)
        assert await tasks(lenient, start, end) == [(0, 4, 6)]


async def test_a_stream_that_was_created_again_is_another_stream(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        view = await stream(lake, "orders", 6)
        strict, lenient = planner(lake), planner(lake, failOnDataLoss="false")
        start, end = await strict.beginning(Bound(EARLIEST)), await strict.ending()
        await lake.lake.stores.metadata.streams.delete(view.stream.number)
        with pytest.raises(DataLoss, match="orders"):
            await strict.latest(start)
        await stream(lake, "orders", 2)

        for step in (strict.latest(end), strict.tasks(start, end)):
            with pytest.raises(DataLoss, match="stream orders was deleted and created again"):
                await step
        with pytest.raises(DataLoss, match="stream orders was deleted and created again"):
            await strict.tasks(end, await strict.ending())
        renewed = await lenient.latest(end)
        assert ends(renewed) == {"orders": {0: 2}}
        assert renewed is not None
        assert await tasks(lenient, end, renewed) == [(0, 0, 2)]


async def test_a_log_that_is_shorter_than_what_was_read_fails_the_query(tmp_path: Path) -> None:
    async with live_lake(tmp_path) as lake:
        await stream(lake, "orders", 6)
        plan = planner(lake, failOnDataLoss="false")
        found = (await plan.ending()).streams["orders"]
        ahead = Offsets({"orders": type(found)(found.id, {0: 7})})
        with pytest.raises(DataLoss, match="an older state of the stores was restored"):
            await plan.latest(ahead)
