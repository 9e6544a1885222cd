"""Catalogs: SQLite, PostgreSQL and REST do the same; names and owners of tables; bad settings; outages."""

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from bearlake.errors import Conflict, Corrupt, Fenced, Invalid, Unavailable
from bearlake.metadata.model import Stream
from bearlake.objects import ObjectStore
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.table.applied_tasks import ENDS_PROPERTY
from bearlake.table.iceberg import IcebergTables, open_tables
from bearlake.table.lookup import Lookup
from bearlake.table.model import AppliedTask, TableChange
from bearlake.table.settings import TableSettings
from fixtures.postgresql import PostgresqlServer, execute
from fixtures.postgresql_proxy import Proxy
from fixtures.s3 import S3Server
from fixtures.tables import Work, a_stream, commit_of, local_store, pyiceberg_catalog, sqlite_settings, tables_in


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


@pytest.fixture
async def tables(tmp_path: Path, store: tuple[ObjectStore, str]) -> AsyncIterator[IcebergTables]:
    opened = tables_in(tmp_path, *store)
    yield opened
    await opened.close()


async def check_a_life(settings: TableSettings, store: ObjectStore, url: str) -> None:
    """Create, commit to, expire, fence and drop a table, in any catalog."""
    stream = a_stream()
    tables = open_tables(settings, store, url)
    rival = open_tables(settings, store, url)
    try:
        assert await tables.state(stream) is None
        made = await tables.ensure(stream)
        assert await rival.ensure(stream) == made
        assert made.identifier == ("streams", "orders")
        assert made.location_key == f"table/streams/orders-{stream.id.hex[:8]}"
        work = Work(store, stream)
        for task in range(3):
            attempts = [await work.append(task, task * 4, task * 4 + 4, epoch=epoch) for epoch in (1, 2)]
            done = await asyncio.gather(
                tables.commit(stream, commit_of(attempts[0]), closed_tasks=[task - 1]),
                rival.commit(stream, commit_of(attempts[1]), closed_tasks=[task - 1]),
            )
            assert done[0].applied[task] == done[1].applied[task]
            last = attempts
        summary = await rival.summary(stream)
        assert summary is not None
        assert (summary.row_count, summary.state.ends, len(summary.snapshots)) == (12, {0: 12}, 3)
        winner = last[summary.state.applied[2] - 1].add[0]
        merge = TableChange(task=AppliedTask(task_id=9, epoch=1), add=[await work.file(0, 8, 12)], remove=[winner.key])
        await tables.commit(stream, commit_of(merge), closed_tasks=[])
        await tables.expire(stream, keep_ms=-1_000_000, keep_count_min=1)
        assert await rival.live_files(stream, {winner.key, merge.add[0].key}) == {merge.add[0].key}
        summary = await rival.summary(stream)
        assert summary is not None
        assert (summary.row_count, len(summary.snapshots)) == (12, 1)
        await check_that_a_fence_holds(tables, rival, work)
        await tables.drop(stream)
        assert await rival.state(stream) is None
    finally:
        await tables.close()
        await rival.close()


async def check_that_a_fence_holds(tables: IcebergTables, rival: IcebergTables, work: Work) -> None:
    """A commit passed its check; a rival fences the table; the request arrives afterwards."""
    before = await rival.state(work.stream)
    asked: list[int] = []

    async def check() -> None:
        asked.append(len(asked))
        if len(asked) > 1:
            raise Fenced("overtaken")
        await rival.fence(work.stream)

    late = await work.append(5, 12, 16)
    with pytest.raises(Fenced):
        await tables.commit(work.stream, commit_of(late), closed_tasks=[], check=check)
    state = await rival.state(work.stream)
    assert before is not None
    assert state is not None
    assert asked == [0, 1]
    assert (state.ends, state.applied) == (before.ends, before.applied)
    assert state.snapshot_id != before.snapshot_id
    assert not await rival.live_files(work.stream, [late.add[0].key])


async def test_a_table_lives_in_a_sqlite_catalog(tmp_path: Path, store: tuple[ObjectStore, str]) -> None:
    await check_a_life(sqlite_settings(tmp_path), *store)


async def test_a_table_lives_in_a_postgresql_catalog(postgresql_url: str, store: tuple[ObjectStore, str]) -> None:
    await check_a_life(TableSettings(catalog_url=postgresql_url, commit_pause_max_ms=5), *store)


@pytest.mark.integration
async def test_a_table_lives_in_a_rest_catalog(iceberg_rest_url: str, store: tuple[ObjectStore, str]) -> None:
    await check_a_life(TableSettings(catalog_url=iceberg_rest_url, commit_pause_max_ms=5), *store)


@pytest.mark.integration
async def test_a_table_lives_on_s3(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{s3_bucket}/lake"
    store = open_store(url, ObjectStoreSettings(cloud=CloudSettings(endpoint=s3_server.endpoint)))
    await check_a_life(sqlite_settings(tmp_path), store, url)
    await store.close()


async def test_killed_connections_to_postgresql_lose_and_repeat_nothing(
    postgresql_url: str, store: tuple[ObjectStore, str]
) -> None:
    tables = open_tables(TableSettings(catalog_url=postgresql_url, commit_pause_max_ms=5), *store)
    work = Work(store[0], a_stream())
    await tables.ensure(work.stream)
    changes = [await work.append(task, task * 4, task * 4 + 4) for task in range(12)]

    async def commit_all() -> None:
        for change in changes:
            while True:
                try:
                    await tables.commit(work.stream, commit_of(change), closed_tasks=[])
                    break
                except Unavailable:
                    continue

    committing = asyncio.create_task(commit_all())
    kill = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'bearlake'"
    for _ in range(100):  # bounded, because a slow machine commits nothing between two kills
        await execute(postgresql_url, kill)
        if committing.done():
            break
    await committing

    summary = await tables.summary(work.stream)
    await tables.close()
    assert summary is not None
    assert (summary.row_count, summary.state.ends, len(summary.snapshots)) == (48, {0: 48}, 12)


async def test_a_connection_that_was_reset_while_idle_is_replaced(
    postgresql_url: str, store: tuple[ObjectStore, str]
) -> None:
    proxy = Proxy(postgresql_url)
    tables = open_tables(TableSettings(catalog_url=await proxy.start(), catalog_deadline_ms=5_000), *store)
    stream = a_stream()
    made = await tables.ensure(stream)
    proxy.resets_next_question = True

    assert await tables.ensure(stream) == made
    assert not proxy.resets_next_question
    await tables.close()
    await proxy.stop()


async def test_a_catalog_that_is_down_is_unavailable_and_recovers(
    postgresql_server: PostgresqlServer, postgresql_url: str, store: tuple[ObjectStore, str]
) -> None:
    settings = TableSettings(catalog_url=postgresql_url, commit_attempt_count_max=2, commit_pause_max_ms=5)
    tables = open_tables(settings, *store)
    work = Work(store[0], a_stream())
    await tables.ensure(work.stream)
    change = await work.append(1, 0, 4)

    postgresql_server.kill()
    with pytest.raises(Unavailable):
        await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    fresh = open_tables(settings, *store)
    with pytest.raises(Unavailable):
        await fresh.state(work.stream)
    postgresql_server.start()
    state = await tables.commit(work.stream, commit_of(change), closed_tasks=[])

    assert await fresh.state(work.stream) == state
    await tables.close()
    await fresh.close()


async def test_a_sqlite_catalog_syncs_the_folder_too(tables: IcebergTables) -> None:
    await tables.state(a_stream())

    def mode() -> int:
        catalog = tables.lookup().catalog
        assert isinstance(catalog, SqlCatalog)
        with catalog.engine.connect() as connection:
            return int(connection.exec_driver_sql("pragma synchronous").scalar_one())

    assert await tables.run("test", mode) == 3  # EXTRA


async def test_a_locked_sqlite_catalog_is_unavailable(tmp_path: Path, store: tuple[ObjectStore, str]) -> None:
    tables = tables_in(tmp_path, *store, catalog_deadline_ms=50, commit_attempt_count_max=2)
    work = Work(store[0], a_stream())
    await tables.ensure(work.stream)
    change = await work.append(1, 0, 4)
    holder = sqlite3.connect(tmp_path / "catalog.db")
    holder.execute("begin immediate")

    with pytest.raises(Unavailable):
        await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    holder.rollback()
    holder.close()
    state = await tables.commit(work.stream, commit_of(change), closed_tasks=[])

    assert state.ends == {0: 4}
    await tables.close()


async def test_a_name_taken_by_another_stream_gets_a_suffix(tables: IcebergTables) -> None:
    first, second = a_stream("a.b", 1), a_stream("a_b", 2)

    states = [await tables.ensure(first), await tables.ensure(second)]
    await tables.drop(first)

    assert [state.identifier[1] for state in states] == ["a_b", f"a_b_{second.id.hex[:8]}"]
    assert states[0].location_key != states[1].location_key
    assert await tables.ensure(second) == states[1]  # although the first name is free now
    assert await tables.state(first) is None


async def test_a_new_incarnation_does_not_get_the_table_of_the_old_incarnation(tables: IcebergTables) -> None:
    old = a_stream()
    new = replace(old, id=uuid.uuid4(), number=8)
    kept = await tables.ensure(old)

    state = await tables.ensure(new)

    assert state.identifier == ("streams", f"orders_{new.id.hex[:8]}")
    assert state.ends == {}
    assert await tables.state(old) == kept


async def test_names_follow_the_streams_configs(tables: IcebergTables) -> None:
    stream = a_stream("a.b", configs={"table.namespace": "sales", "table.name": "orders"})

    assert (await tables.ensure(stream)).identifier == ("sales", "orders")


async def test_both_names_taken_is_a_conflict(tables: IcebergTables, tmp_path: Path) -> None:
    stream = a_stream()
    await tables.state(stream)
    catalog = pyiceberg_catalog(tmp_path, warehouse=f"file://{tmp_path}/theirs")
    catalog.create_namespace("streams")
    for name in ("orders", f"orders_{stream.id.hex[:8]}"):
        catalog.create_table(("streams", name), Schema(NestedField(1, "id", LongType())))

    with pytest.raises(Conflict, match="do not belong to this stream"):
        await tables.ensure(stream)


async def test_a_table_without_our_columns_is_a_conflict_and_extra_columns_are_accepted(
    tables: IcebergTables, tmp_path: Path
) -> None:
    stream = a_stream()
    await tables.ensure(stream)
    theirs = pyiceberg_catalog(tmp_path).load_table("streams.orders")
    with theirs.update_schema() as update:
        update.add_column("note", LongType()).rename_column("_key", "id")
    assert (await tables.ensure(stream)).identifier == ("streams", "orders")

    with theirs.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("_value")
    with pytest.raises(Conflict, match="no column _value"):
        await tables.ensure(stream)


async def test_marks_that_somebody_overwrote_are_corrupt(tables: IcebergTables, tmp_path: Path) -> None:
    stream = a_stream()
    await tables.ensure(stream)
    theirs = pyiceberg_catalog(tmp_path).load_table("streams.orders")
    with theirs.transaction() as transaction:
        transaction.set_properties({ENDS_PROPERTY: "[]"})

    with pytest.raises(Corrupt, match=r"bearlake\.ends"):
        await tables.state(stream)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"catalog_url": "mysql://host/x"}, "expected sqlite"),
        ({"catalog_url": "sqlite://relative.db"}, "absolute path"),
        ({"catalog_url": "postgresql://u:secret@h/d?sslmode=maybe"}, "sslmode"),
        ({"catalog_url": "postgresql://u:secret@h/d?color=red"}, "unknown parameters color"),
        ({"catalog_properties": ("token",)}, "name=value"),
        ({"catalog_credentials_file": "/absent"}, "cannot be read"),
    ],
)
async def test_bad_settings_are_invalid_and_reveal_no_secret(
    tmp_path: Path, store: tuple[ObjectStore, str], settings: dict[str, Any], message: str
) -> None:
    tables = tables_in(tmp_path, *store, **settings)

    with pytest.raises(Invalid, match=message) as caught:
        await tables.state(a_stream())
    await tables.close()
    assert "secret" not in str(caught.value)


async def test_an_unreachable_postgresql_shows_no_password(
    store: tuple[ObjectStore, str], caplog: pytest.LogCaptureFixture
) -> None:
    tables = open_tables(TableSettings(catalog_url="postgresql://u:hush@127.0.0.1:1/d"), *store)

    with pytest.raises(Unavailable) as caught:
        await tables.state(a_stream())
    await tables.close()
    assert "hush" not in str(caught.value) + caplog.text


async def test_a_table_that_another_worker_makes_after_our_look_is_ours_too(
    tables: IcebergTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, find = a_stream(), Lookup.find
    looks = 0

    def find_late(lookup: Lookup, wanted: Stream) -> Table | None:
        nonlocal looks
        looks += 1
        found = find(lookup, wanted)
        if looks == 1:
            lookup.ensure(wanted)  # the other worker
        return found

    monkeypatch.setattr(Lookup, "find", find_late)

    made = await tables.ensure(stream)

    assert made.identifier == ("streams", "orders")
    assert looks == 4  # ours, the other worker's before and after its creation, ours again


async def test_many_streams_are_ensured_at_once(tables: IcebergTables) -> None:
    streams: list[Stream] = [a_stream(f"s{number}", number) for number in range(8)]

    made = await asyncio.gather(*(tables.ensure(stream) for stream in [*streams, *streams]))

    assert made[:8] == made[8:]
    assert {state.identifier[1] for state in made} == {stream.name for stream in streams}
