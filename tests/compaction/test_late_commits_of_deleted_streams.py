"""Table commits and table creations that arrive after the stream was deleted; see `fixtures/late_commits.py`."""

import asyncio
import uuid
from typing import Any

import pytest

from bearlake.compaction.ensuring import StreamDeleted, ensure_table
from bearlake.compaction.upkeep import QUIET_ROUND_COUNT
from bearlake.metadata.model import Stream, StreamSpec
from bearlake.table import CommitCheck, PredecessorCheck
from bearlake.table.model import TableState
from fixtures.late_commits import (
    ENSURE,
    POINTS,
    REPLACE,
    Gate,
    Intercepted,
    does,
    late_compaction,
    rows,
    scene,
    sweep_all,
    upkeep_of,
    with_two_files,
)
from fixtures.virtual_lake import Lake


@pytest.mark.parametrize("point", POINTS)
@scene
async def test_the_kept_table_of_a_deleted_stream_lists_no_file_that_was_swept(lake: Lake, point: str) -> None:
    stream, former = await late_compaction(lake, point)
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


@scene
async def test_a_file_that_a_late_commit_brought_before_the_sweep_stays_with_the_kept_table(lake: Lake) -> None:
    stream, former = await late_compaction(lake, REPLACE)
    await lake.metadata.streams.delete(stream.number)
    await does(lake)
    await former.wakes_up()
    for _ in range(2):
        await sweep_all(lake)
        assert await rows(lake, stream) == 3


@pytest.mark.parametrize("point", POINTS)
@scene
async def test_the_table_of_a_deleted_stream_is_not_created_again(lake: Lake, point: str) -> None:
    stream, former = await late_compaction(lake, point, table__on_delete="drop")
    await lake.metadata.streams.delete(stream.number)
    await upkeep_of(lake).run_once()
    assert not lake.tables.tables
    await former.wakes_up()

    assert not lake.tables.tables


@scene
async def test_a_table_that_was_made_while_its_stream_was_deleted_is_dropped_again(lake: Lake) -> None:
    stream = await lake.stream(table__on_delete="drop")
    gate: Any = Gate(lake.tables, ENSURE)
    making = asyncio.create_task(ensure_table(stream, lake.metadata.streams, gate))
    await gate.reached.wait()
    await lake.metadata.streams.delete(stream.number)
    gate.open.set()
    with pytest.raises(StreamDeleted):
        await making

    assert not lake.tables.tables


@scene
async def test_upkeep_drops_a_table_that_a_catalog_makes_very_late(lake: Lake) -> None:
    """Regardless of the number of rounds since the deletion, and of the sender."""
    streams = [await lake.stream(f"s{number}", table__on_delete="drop") for number in range(30)]
    for stream in streams:
        await lake.metadata.streams.delete(stream.number)
    upkeep = upkeep_of(lake)
    for _ in range(QUIET_ROUND_COUNT + 1):
        await upkeep.run_once()
    for stream in streams:
        await lake.tables.ensure(stream)
    for _ in range(QUIET_ROUND_COUNT):
        await upkeep.run_once()

    assert not lake.tables.tables


@scene
async def test_a_renamed_table_keeps_the_files_that_it_names(lake: Lake) -> None:
    """Also a file that only the table names, since its task was closed between table commit and swap; another client renames it back."""
    stream, former = await late_compaction(lake, REPLACE)
    await lake.metadata.streams.delete(stream.number)
    await does(lake)
    await former.wakes_up()
    lake.tables.rename_away(stream)
    await sweep_all(lake)
    lake.tables.rename_back(stream)

    assert await rows(lake, stream) == 3


@pytest.mark.parametrize("method", ["live_files", "fence"])
@scene
async def test_a_table_that_is_renamed_during_a_sweep_keeps_its_files(lake: Lake, method: str) -> None:
    stream, former = await late_compaction(lake, REPLACE)
    await lake.metadata.streams.delete(stream.number)
    await does(lake)
    look = getattr(lake.tables, method)
    first = [True]

    async def renamed(*arguments: Any) -> Any:
        found = await look(*arguments)
        if first.pop() if first else False:
            await former.wakes_up()
            lake.tables.rename_away(stream)
        return found

    setattr(lake.tables, method, renamed)
    await sweep_all(lake)
    lake.tables.rename_back(stream)

    assert await rows(lake, stream) in (2, 3)


@scene
async def test_the_kept_table_of_a_deleted_stream_is_kept_up(lake: Lake) -> None:
    stream = await with_two_files(lake)
    await lake.metadata.streams.delete(stream.number)
    looked: list[int] = []
    expire = lake.tables.expire

    async def looks(stream: Stream, **settings: int) -> int:
        looked.append(stream.number)
        return await expire(stream, **settings)

    lake.tables.expire = looks  # type: ignore[assignment,method-assign]
    upkeep = upkeep_of(lake)
    for _ in range(QUIET_ROUND_COUNT + 3):
        await upkeep.run_once()

    assert looked == [stream.number] * (QUIET_ROUND_COUNT + 3)
    assert await rows(lake, stream) == 2


@pytest.mark.parametrize("can_exclude", [True, False], ids=["sql", "rest"])
@scene
async def test_metadata_files_of_a_dropped_table_are_swept(lake: Lake, can_exclude: bool) -> None:
    """A REST catalog may execute the creation late, and a table without its first file would block the name."""
    dropped = await with_two_files(lake, table__on_delete="drop")
    kept = await lake.stream("kept")
    keys = {}
    for stream in (dropped, kept):
        folder = f"{(await lake.tables.ensure(stream)).location_key}/metadata"
        keys[stream.name] = [
            f"{folder}/{name}" for name in ("00000-a.metadata.json", "00001-b.metadata.json", "snap-1.avro")
        ]
        for key in keys[stream.name]:
            await lake.store.put(key, [b"{}"])
        await lake.metadata.streams.delete(stream.number)
    await upkeep_of(lake).run_once()
    is_absent = lake.tables.is_absent

    async def unknown(stream: Stream) -> bool | None:
        return await is_absent(stream) and None

    if not can_exclude:
        lake.tables.is_absent = unknown  # type: ignore[method-assign]
    await sweep_all(lake)

    left = [key for key in await lake.listed("table/") if "/metadata/" in key]
    assert left == sorted([*([] if can_exclude else keys["orders"][:1]), *keys["kept"]])


@scene
async def test_files_of_a_table_stay_when_the_id_of_a_dropped_table_has_the_same_prefix(lake: Lake) -> None:
    ids = iter([uuid.UUID(int=0x1234ABCD << 96 | number) for number in range(2)])
    lake.metadata.streams._new_uuid = lambda: next(ids)  # type: ignore[attr-defined]  # noqa: SLF001
    dropped = await lake.stream("dropped", table__on_delete="drop")
    kept = await lake.stream("kept")
    await lake.tables.ensure(dropped)
    folder = (await lake.tables.ensure(kept)).location_key
    keys = [f"{folder}/metadata/{name}" for name in ("00001-b.metadata.json", "snap-1.avro")]
    for key in keys:
        await lake.store.put(key, [b"{}"])
    await lake.metadata.streams.delete(dropped.number)
    await upkeep_of(lake).run_once()
    await sweep_all(lake)

    assert [key for key in await lake.listed("table/") if "/metadata/" in key] == keys


@scene
async def test_a_stream_knows_whether_an_older_one_may_have_had_its_tables_name(lake: Lake) -> None:
    asked: list[bool] = []
    ensure = lake.tables.ensure

    async def asks(stream: Stream, *, has_predecessor: PredecessorCheck, check: CommitCheck) -> TableState:
        asked.append(await has_predecessor())
        return await ensure(stream)

    tables: Any = Intercepted(lake.tables, ensure=asks)
    for name in ("a.b", "other", "a_b", "a.b"):
        newest = await lake.metadata.streams.newest(name)
        stream = await lake.metadata.streams.create(StreamSpec(name=name, partition_count=1, after=newest))
        await ensure_table(stream, lake.metadata.streams, tables)
        await lake.metadata.streams.delete(stream.number)

    assert asked == [False, False, True, True]
