"""Maintenance in PostgreSQL: bounded rounds, one worker at a time, and expiry of remembered results."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures import by_name

HOUR_MS = 3_600_000


async def test_a_round_is_bounded_by_entries_and_by_slices(postgresql_backend: Any, writer_on: Any) -> None:
    postgresql_backend.settings = PostgresqlSettings(roll_entry_count_max=4, roll_slice_count_max=5)
    metadata = await postgresql_backend.open()
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=8))
    writer = await writer_on.on(metadata)
    for partition_count in (1, 1, 1, 1, 3, 3, 8, 1):
        await writer.commit(writer.object([stream.partition(i) for i in range(partition_count)]))
    rounds = []
    while count := await metadata.log._round(1_000):
        rounds.append(count)

    # The stream's entry and three commits; 1 + 3 slices; 3; 8 at once, since an entry is not split; 1.
    assert rounds == [4, 2, 1, 1, 1]


async def test_only_one_caller_rolls_up_at_a_time(postgresql_backend: Any, writer_on: Any) -> None:
    handles = [await postgresql_backend.open() for _ in range(3)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=1))
    partition = stream.partition(0)
    writer = await writer_on.on(handles[0])
    for _ in range(30):
        await writer.commit(writer.object([partition]))
        await asyncio.gather(*(handle.log.maintain(entry_count_min=0) for handle in handles))
    rows = await postgresql_backend.execute("select rolled, truncated from bearlake.log_tail")
    located = await handles[0].log.locate(partition, 0, limit=100)

    assert [tuple(row) for row in rows] == [(31, 31)]
    assert [located_slice.slice.base_offset for located_slice in located.slices] == list(range(0, 90, 3))


async def test_pages_are_filled_before_new_ones_begin(postgresql_backend: Any, writer_on: Any) -> None:
    postgresql_backend.settings = PostgresqlSettings(page_slice_count_max=4)
    metadata = await postgresql_backend.open()
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(metadata)
    for _ in range(10):
        await writer.commit(writer.object([stream.partition(0)]))
        await metadata.log.maintain(entry_count_min=0)
    pages = await postgresql_backend.execute(
        "select base_offset, end_offset, cardinality(objects), size_bytes from bearlake.index_page order by base_offset"
    )

    assert [tuple(page) for page in pages] == [(0, 12, 4, 400), (12, 24, 4, 400), (24, 30, 2, 200)]


async def test_an_object_loses_its_slices_when_trims_and_deletions_are_swept(
    postgresql_backend: Any, writer_on: Any
) -> None:
    postgresql_backend.settings = PostgresqlSettings(page_slice_count_max=1, sweep_page_count_max=2)
    metadata = await postgresql_backend.open()
    streams = [await metadata.streams.create(StreamSpec(name=name, partition_count=1)) for name in ("kept", "gone")]
    partitions = [stream.partition(0) for stream in streams]
    writer = await writer_on.on(metadata)
    for _ in range(5):
        await writer.commit(writer.object(partitions, producer=7))
        await metadata.log.maintain(entry_count_min=0)
    await metadata.log.trim(partitions[0], 9)
    await by_name.delete(metadata, "gone")
    for _ in range(10):
        await metadata.log.maintain(entry_count_min=0)
    counts = await postgresql_backend.execute("select slice_count from bearlake.object order by number")
    left = await postgresql_backend.execute(
        "select (select count(*) from bearlake.sweep), (select count(*) from bearlake.producer),"
        " (select count(*) from bearlake.index_page)"
    )

    assert [row[0] for row in counts] == [0, 0, 0, 1, 1]
    assert tuple(left[0]) == (0, 1, 2)


async def test_a_result_can_be_asked_for_an_hour_and_the_token_stays_used(
    postgresql_backend: Any, writer_on: Any
) -> None:
    metadata = await postgresql_backend.open()
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(metadata)
    commit = writer.object([stream.partition(0)])
    first = await metadata.log.commit(commit)
    await postgresql_backend.advance(HOUR_MS - 1)
    await metadata.log.maintain(entry_count_min=0)
    assert await metadata.log.commit(commit) == first

    await postgresql_backend.advance(2)
    await metadata.log.maintain(entry_count_min=0)
    with pytest.raises(Conflict):
        await metadata.log.commit(commit)
    assert await metadata.log.forbid([commit.token]) == set()
    assert (await metadata.log.bounds([stream.partition(0)]))[stream.partition(0)].end == 3


async def test_a_forbidden_token_is_remembered_for_a_week(postgresql_backend: Any, writer_on: Any) -> None:
    metadata = await postgresql_backend.open()
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(metadata)
    commit = replace(writer.object([stream.partition(0)]), token="orphan")
    assert await metadata.log.forbid(["orphan"]) == {"orphan"}
    await postgresql_backend.advance(7 * 24 * HOUR_MS - 1)
    await metadata.log.maintain(entry_count_min=0)
    with pytest.raises(Fenced):
        await metadata.log.commit(commit)

    await postgresql_backend.advance(2)
    await metadata.log.maintain(entry_count_min=0)
    rows = await postgresql_backend.execute("select count(*) from bearlake.object")
    assert rows[0][0] == 0


async def test_the_real_store_uses_the_clock_of_the_database(postgresql_url: str, writer_on: Any) -> None:
    metadata = await open_postgresql(postgresql_url)
    await writer_on.on(metadata)
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    await metadata.close()

    assert stream.created_ms > 1_700_000_000_000
