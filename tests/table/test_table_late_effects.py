# ruff: noqa: SLF001 - answers of the catalog are lost or held at the last step before the socket
"""Catalog requests that are executed late, and concurrent changes by other engines.

Promised to readers of the table: each acknowledged record is a row once, and the table stays readable.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from bearlake.clock import ManualClock
from bearlake.errors import NotFound, Unavailable
from bearlake.objects import ObjectInfo, ObjectStore
from bearlake.table.iceberg import IcebergTables
from bearlake.table.lookup import Lookup
from fixtures.late_requests import appended, foreign, kept_requests, meanwhile, offsets
from fixtures.tables import START_MS, Work, a_stream, commit_of, pyiceberg_catalog, rows

HOUR_MS = 3_600_000


async def test_a_commit_that_is_executed_after_the_grace_leaves_the_table_readable(
    tmp_path: Path, tables: IcebergTables, rival: IcebergTables, work: Work, clock: ManualClock
) -> None:
    await appended(tables, work, 0)
    change = await work.append(2, 1, 2)
    with kept_requests(tables, "commit_table") as late, pytest.raises(Unavailable):
        await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    clock.advance(100 * HOUR_MS)
    await rival.expire(work.stream, keep_ms=1000 * HOUR_MS, keep_count_min=1)
    for execute in late:
        with suppress(CommitFailedException):
            await asyncio.to_thread(execute)

    assert offsets(tmp_path) == [0]
    await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    assert offsets(tmp_path) == [0, 1]


async def test_a_commit_that_is_paused_before_its_last_statement_leaves_the_table_readable(
    tmp_path: Path, tables: IcebergTables, rival: IcebergTables, work: Work, clock: ManualClock
) -> None:
    """The catalog has looked at the table already and the new metadata file is written."""
    await appended(tables, work, 0)

    async def keep_up() -> None:
        clock.advance(100 * HOUR_MS)
        await rival.expire(work.stream, keep_ms=1000 * HOUR_MS, keep_count_min=1)

    with meanwhile(tables, "_write_metadata", keep_up, is_after=True):
        await appended(tables, work, 1)

    assert offsets(tmp_path) == [0, 1]


async def test_files_of_a_commit_that_never_happened_are_deleted_once(
    tmp_path: Path, tables: IcebergTables, work: Work, clock: ManualClock, store: tuple[ObjectStore, str]
) -> None:
    await appended(tables, work, 0)
    with kept_requests(tables, "commit_table"), pytest.raises(Unavailable):
        await appended(tables, work, 1)
    clock.advance(100 * HOUR_MS)
    deleted = await tables.expire(work.stream, keep_ms=1000 * HOUR_MS, keep_count_min=1)
    state = await tables.state(work.stream)

    assert deleted == 3 * 2  # a manifest and a manifest list per try
    assert await tables.expire(work.stream, keep_ms=1000 * HOUR_MS, keep_count_min=1) == 0
    assert await tables.state(work.stream) == state  # nothing is left to fence for
    assert offsets(tmp_path) == [0]


async def test_manifests_that_another_engine_may_commit_again_stay(
    tables: IcebergTables, work: Work, clock: ManualClock, store: tuple[ObjectStore, str]
) -> None:
    """Spark and Flink write manifests before they commit, and commit them again after a conflict."""
    await appended(tables, work, 0)
    state = await tables.state(work.stream)
    assert state is not None
    theirs = f"{state.location_key}/metadata/9d3d4f6c-5d3b-4a53-8e1c-0d2c6a0f5a11-m0.avro"
    await store[0].put(theirs, [b"Obj"])
    clock.advance(100 * HOUR_MS)
    await tables.expire(work.stream, keep_ms=0, keep_count_min=1)

    assert await store[0].size(theirs) == 3


@pytest.mark.parametrize("is_late", [False, True], ids=["between", "late"])
async def test_an_expiry_that_meets_a_rollback_keeps_the_rows(
    tmp_path: Path, tables: IcebergTables, work: Work, clock: ManualClock, is_late: bool
) -> None:
    ids = await appended(tables, work, 0, 1, 2)
    clock.advance(2 * HOUR_MS)

    async def roll_back() -> None:
        await asyncio.to_thread(lambda: foreign(tmp_path).manage_snapshots().rollback_to_snapshot(ids[0]).commit())

    if is_late:
        with kept_requests(tables, "commit_table") as late, pytest.raises(Unavailable):
            await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)
        await roll_back()
        for execute in late:
            with suppress(CommitFailedException):
                await asyncio.to_thread(execute)
    else:
        with meanwhile(tables, "commit_table", roll_back):
            await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)

    assert offsets(tmp_path) == [0]


async def test_an_expiry_that_meets_a_new_tag_keeps_what_it_names(
    tmp_path: Path, tables: IcebergTables, work: Work, clock: ManualClock
) -> None:
    ids = await appended(tables, work, 0, 1, 2)
    clock.advance(2 * HOUR_MS)

    async def tag() -> None:
        await asyncio.to_thread(lambda: foreign(tmp_path).manage_snapshots().create_tag(ids[0], "audit").commit())

    with meanwhile(tables, "commit_table", tag):
        await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)

    assert foreign(tmp_path).scan(snapshot_id=ids[0]).to_arrow().num_rows == 1
    assert set(foreign(tmp_path).metadata.refs) == {"main", "audit"}
    assert offsets(tmp_path) == [0, 1, 2]


async def test_rows_that_another_engine_adds_during_an_expiry_stay(
    tmp_path: Path, tables: IcebergTables, work: Work, clock: ManualClock
) -> None:
    await appended(tables, work, 0, 1, 2)
    clock.advance(2 * HOUR_MS)

    async def append() -> None:
        await asyncio.to_thread(lambda: foreign(tmp_path).append(rows(3, 100, 102)))

    with meanwhile(tables, "commit_table", append):
        await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)

    assert offsets(tmp_path) == [0, 1, 2, 100, 101]


async def test_a_late_drop_spares_the_table_of_the_new_stream_with_the_same_name(
    tmp_path: Path, tables: IcebergTables, rival: IcebergTables, work: Work
) -> None:
    await appended(tables, work, 0)
    new = Work(work._store, a_stream(number=8))

    async def recreate() -> None:
        await rival.drop(work.stream)
        await rival.ensure(new.stream)
        await appended(rival, new, 0, 1)

    with meanwhile(tables, "drop_version", recreate):
        await tables.drop(work.stream)

    assert offsets(tmp_path) == [0, 1]
    assert await tables.state(work.stream) is None


async def test_a_table_that_gets_a_commit_while_it_is_dropped_is_dropped(
    tables: IcebergTables, rival: IcebergTables, work: Work
) -> None:
    async def commit() -> None:
        await appended(rival, work, 0)

    with meanwhile(tables, "drop_version", commit):
        await tables.drop(work.stream)

    assert await tables.state(work.stream) is None


async def test_a_renamed_table_is_not_absent(tmp_path: Path, tables: IcebergTables, work: Work) -> None:
    await appended(tables, work, 0)
    foreign(tmp_path).catalog.rename_table("streams.orders", "streams.mine")

    assert await tables.is_absent(work.stream) is False
    assert await tables.is_absent(a_stream()) is True


async def test_a_renamed_table_gets_all_further_records(
    tmp_path: Path, tables: IcebergTables, work: Work, clock: ManualClock
) -> None:
    await appended(tables, work, 0)
    theirs = foreign(tmp_path).catalog
    theirs.rename_table("streams.orders", "streams.mine")
    await tables.ensure(work.stream)
    await appended(tables, work, 1)
    clock.advance(100 * HOUR_MS)
    await tables.expire(work.stream, keep_ms=0, keep_count_min=1)

    assert [name[-1] for name in theirs.list_tables("streams")] == ["mine"]
    assert theirs.load_table("streams.mine").scan().to_arrow().num_rows == 2


async def test_a_late_drop_by_name_spares_the_table_of_the_new_stream_with_the_same_name(
    tmp_path: Path, tables: IcebergTables, work: Work
) -> None:
    """As in a catalog that knows no conditional drop, which Iceberg REST does not."""
    by_name = pyiceberg_catalog(tmp_path, **tables.bridge.properties())
    tables._lookup = Lookup(by_name, tables.locations, tables.settings)
    await appended(tables, work, 0)
    new = Work(work._store, a_stream(number=8))

    async def yes() -> bool:
        return True

    with kept_requests(tables, "drop_table") as late, pytest.raises(Unavailable):
        await tables.drop(work.stream)
    await tables.drop(work.stream)
    made = await tables.ensure(new.stream, has_predecessor=yes)
    await appended(tables, new, 0, 1)
    for execute in late:
        with suppress(NoSuchTableError):
            await asyncio.to_thread(execute)

    by_name.close()
    theirs = pyiceberg_catalog(tmp_path).load_table(made.identifier)
    assert theirs.scan().to_arrow().num_rows == 2


async def test_two_expiries_of_one_table_do_no_harm(
    tmp_path: Path, tables: IcebergTables, rival: IcebergTables, work: Work, clock: ManualClock
) -> None:
    await appended(tables, work, 0, 1, 2)
    clock.advance(2 * HOUR_MS)

    async def expire() -> None:
        await rival.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)

    with meanwhile(tables, "commit_table", expire):
        await tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1)

    assert offsets(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("operation", ["commit", "fence", "delete_before", "expire"])
async def test_a_retry_does_not_affect_another_table_that_has_the_name_now(
    tmp_path: Path, tables: IcebergTables, rival: IcebergTables, work: Work, clock: ManualClock, operation: str
) -> None:
    await appended(tables, work, 0, 1)
    clock.advance(2 * HOUR_MS)
    change = await work.append(9, 2, 3)
    new = Work(work._store, a_stream(number=8))

    async def recreate() -> None:
        await rival.drop(work.stream)
        await rival.ensure(new.stream)
        await appended(rival, new, 0, 1)

    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "commit": lambda: tables.commit(work.stream, commit_of(change), closed_tasks=[]),
        "fence": lambda: tables.fence(work.stream),
        "delete_before": lambda: tables.delete_before(work.stream, START_MS + HOUR_MS),
        "expire": lambda: tables.expire(work.stream, keep_ms=HOUR_MS, keep_count_min=1),
    }
    with meanwhile(tables, "commit_table", recreate), suppress(NotFound):
        await calls[operation]()

    state = await tables.state(new.stream)
    assert state is not None
    assert (state.ends, len(foreign(tmp_path).metadata.snapshots)) == ({0: 2}, 2)
    assert offsets(tmp_path) == [0, 1]


async def test_a_table_that_is_renamed_during_its_upkeep_stays_readable(
    tmp_path: Path, tables: IcebergTables, rival: IcebergTables, work: Work, clock: ManualClock
) -> None:
    """Another stream's table has the name when upkeep lists the named files."""
    await appended(tables, work, 0)
    clock.advance(100 * HOUR_MS)
    store, theirs = work._store, foreign(tmp_path).catalog
    listing = store.list

    async def renamed_first(prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        theirs.rename_table("streams.orders", "streams.mine")
        await rival.ensure(a_stream(number=8))
        async for found in listing(prefix, after):
            yield found

    with pytest.MonkeyPatch.context() as patch, suppress(NotFound):
        patch.setattr(store, "list", renamed_first)
        await tables.expire(work.stream, keep_ms=0, keep_count_min=1)

    assert theirs.load_table("streams.mine").scan().to_arrow().num_rows == 1


async def test_a_late_first_commit_of_another_engine_to_a_new_branch_leaves_the_table_readable(
    tmp_path: Path, tables: IcebergTables, work: Work, clock: ManualClock
) -> None:
    """Upkeep's fence moves the main branch, of which this commit requires nothing."""
    await appended(tables, work, 0)
    theirs = foreign(tmp_path)
    late = theirs.transaction()
    await asyncio.to_thread(lambda: late.append(rows(3, 100, 102), branch="audit"))
    clock.advance(100 * HOUR_MS)
    await tables.expire(work.stream, keep_ms=1000 * HOUR_MS, keep_count_min=1)
    await asyncio.to_thread(late.commit_transaction)

    head = foreign(tmp_path).metadata.refs["audit"].snapshot_id
    assert foreign(tmp_path).scan(snapshot_id=head).to_arrow().num_rows == 2
    await tables.expire(work.stream, keep_ms=1000 * HOUR_MS, keep_count_min=1)
