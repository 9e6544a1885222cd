"""Creations of tables that are lost, given up or executed late: no unreferenced file stays, no stream has two tables. Promised to
operators: files of a dropped table are deleted. Promised to readers: a stream has one table, and each record is a row once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from bearlake.clock import ManualClock, SystemClock
from bearlake.errors import NotFound, Unavailable
from bearlake.metadata.model import Stream
from bearlake.objects import ObjectStore
from bearlake.table.creation import PERMIT_PREFIX, CreationLost
from bearlake.table.iceberg import IcebergTables, open_tables
from bearlake.table.naming import location_key
from bearlake.table.settings import TableSettings
from fixtures.late_requests import kept_requests, meanwhile
from fixtures.tables import Work, a_stream, commit_of, local_store, sqlite_settings

HOUR_MS = 3_600_000


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> TableSettings:
    if request.param == "sqlite":
        return sqlite_settings(tmp_path)
    return TableSettings(catalog_url=request.getfixturevalue("postgresql_url"), commit_pause_max_ms=5)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
async def workers(
    settings: TableSettings, store: tuple[ObjectStore, str], clock: ManualClock
) -> AsyncIterator[list[IcebergTables]]:
    """The tables as two workers have them."""
    opened = [open_tables(settings, *store, clock=clock) for _ in range(2)]
    for tables in opened:
        await tables.state(a_stream())  # opens the catalog
    yield opened
    for tables in opened:
        await tables.close()


async def first_versions(store: ObjectStore, stream: Stream) -> list[str]:
    return [key async for key in _metadata(store, stream) if "/00000-" in key]


async def _metadata(store: ObjectStore, stream: Stream) -> AsyncIterator[str]:
    async for found in store.list(f"{location_key(stream)}/metadata/"):
        yield found.key


async def listed(tables: IcebergTables) -> list[str]:
    """The names of all tables in the catalog."""
    catalog: Any = tables.lookup().catalog
    return sorted(name[-1] for name in await asyncio.to_thread(catalog.list_tables, "streams"))


async def executed(late: list[Callable[[], Any]]) -> None:
    for execute in late:
        with suppress(CreationLost):
            await asyncio.to_thread(execute)


async def test_the_loser_of_a_creation_race_leaves_no_file(
    workers: list[IcebergTables], store: tuple[ObjectStore, str]
) -> None:
    stream = a_stream()

    async def create() -> None:
        await workers[1].ensure(stream)

    with meanwhile(workers[0], "_name_first", create):
        made = await workers[0].ensure(stream)

    assert made == await workers[1].state(stream)
    assert [store_key.rpartition("/")[2] for store_key in await first_versions(store[0], stream)] == [
        made.metadata_location.rpartition("/")[2]
    ]


async def test_the_file_of_a_creation_without_an_answer_is_deleted_once_the_creation_is_excluded(
    workers: list[IcebergTables], store: tuple[ObjectStore, str], clock: ManualClock
) -> None:
    stream = a_stream()
    with kept_requests(workers[0], "_name_first") as late, pytest.raises(Unavailable):
        await workers[0].ensure(stream)
    made = await workers[1].ensure(stream)
    assert len(await first_versions(store[0], stream)) == 2
    assert await workers[1].expire(stream, keep_ms=HOUR_MS, keep_count_min=1) == 0
    clock.advance(100 * HOUR_MS)
    deleted = await workers[1].expire(stream, keep_ms=HOUR_MS, keep_count_min=1)
    await executed(late)

    assert deleted == 1
    assert len(await first_versions(store[0], stream)) == 1
    assert await workers[1].state(stream) == made
    assert await listed(workers[1]) == ["orders"]


async def test_a_creation_after_its_file_was_deleted_does_not_block_the_name_of_a_renamed_table(
    workers: list[IcebergTables], clock: ManualClock
) -> None:
    stream = a_stream()
    with kept_requests(workers[0], "_name_first") as late, pytest.raises(Unavailable):
        await workers[0].ensure(stream)
    await workers[1].ensure(stream)
    clock.advance(100 * HOUR_MS)
    await workers[1].expire(stream, keep_ms=HOUR_MS, keep_count_min=1)
    catalog: Any = workers[1].lookup().catalog
    await asyncio.to_thread(catalog.rename_table, "streams.orders", "streams.mine")
    await executed(late)

    assert await listed(workers[1]) == ["mine"]


async def test_a_late_creation_does_not_restore_a_dropped_table(workers: list[IcebergTables]) -> None:
    stream = a_stream()
    with kept_requests(workers[0], "_name_first") as late, pytest.raises(Unavailable):
        await workers[0].ensure(stream)
    await workers[1].ensure(stream)
    await workers[1].drop(stream)
    await executed(late)

    assert await workers[1].is_absent(stream) is True
    assert await listed(workers[1]) == []


@pytest.mark.parametrize("is_looked_at", [False, True])
async def test_no_creation_begun_for_a_stream_that_was_deleted_since_succeeds_after_the_drop(
    workers: list[IcebergTables], store: tuple[ObjectStore, str], is_looked_at: bool
) -> None:
    """The worker checked that the stream exists, and was then paused."""
    stream = a_stream()
    asked: list[int] = []

    async def check() -> None:
        asked.append(len(asked))
        if len(asked) > 1:
            raise NotFound("the stream was deleted")
        if is_looked_at:
            assert await workers[1].is_absent(stream) is True
        else:
            await workers[1].drop(stream)

    with pytest.raises(NotFound):
        await workers[0].ensure(stream, check=check)

    assert await listed(workers[1]) == []
    assert await first_versions(store[0], stream) == []


@pytest.mark.parametrize("point", ["create_namespace_if_not_exists", "_name_first"])
async def test_a_stream_whose_name_becomes_free_during_a_creation_has_one_table(
    workers: list[IcebergTables], store: tuple[ObjectStore, str], point: str
) -> None:
    """Two workers create, one `orders` and one `orders_<id>`: another stream's table was `orders`, until it was dropped in between.

    The first worker is paused before it reads the permit, or after it has chosen the name.
    """
    other, stream = a_stream(number=6), a_stream()
    await workers[1].ensure(other)
    work = Work(store[0], stream)
    steps = [lambda: workers[1].drop(other), lambda: workers[1].ensure(stream)]

    async def free_the_name() -> None:
        for step in steps if point == "_name_first" else reversed(steps):
            await step()
        await workers[1].commit(stream, commit_of(await work.append(1, 0, 1)), closed_tasks=[])

    with meanwhile(workers[0], point, free_the_name):
        await workers[0].ensure(stream)
    state = await workers[0].commit(stream, commit_of(await work.append(2, 1, 2)), closed_tasks=[])

    assert len(await listed(workers[0])) == 1
    assert state.ends == {0: 2}


async def test_a_table_that_exists_has_no_permit(workers: list[IcebergTables]) -> None:
    """Other engines see permits as properties of the namespace, but only while tables are created."""
    streams = [a_stream(), a_stream("other", 8)]
    await asyncio.gather(*(worker.ensure(stream) for worker in workers for stream in streams))
    with kept_requests(workers[0], "_name_first"), pytest.raises(Unavailable):
        await workers[0].ensure(a_stream("third", 9))

    catalog: Any = workers[0].lookup().catalog
    properties = await asyncio.to_thread(catalog.load_namespace_properties, "streams")
    assert len([key for key in properties if key.startswith(PERMIT_PREFIX)]) == 1


async def test_another_engine_that_replaces_the_namespace_loses_no_table(
    workers: list[IcebergTables], settings: TableSettings
) -> None:
    stream = a_stream()

    async def replace() -> None:
        catalog: Any = workers[1].lookup().catalog
        await asyncio.to_thread(SqlCatalog.drop_namespace, catalog, "streams")

    with meanwhile(workers[0], "_name_first", replace):
        made = await workers[0].ensure(stream)

    assert await workers[1].state(stream) == made
