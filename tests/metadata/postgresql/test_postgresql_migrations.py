"""Versions of the layout: created once however many servers start, migrated, refused if newer; and valid URLs."""

import asyncio
import zlib
from typing import Any

import asyncpg
import pytest

from bearlake.errors import Denied, Invalid, NotFound, Unavailable, Unsupported
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.layout import OLDEST, VERSION, available
from bearlake.metadata.postgresql.migrate import LOCK_CLASS
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql import execute
from fixtures.postgresql_metadata import following

NEXT = following(available(), "alter table bearlake.stream add column extra text not null default 'x'")


async def test_many_servers_that_start_at_once_create_the_layout_once(postgresql_url: str) -> None:
    settings = PostgresqlSettings(connections_max=1)
    stores = await asyncio.gather(*(open_postgresql(postgresql_url, settings) for _ in range(8)))
    cluster_ids = {await store.cluster_id() for store in stores}
    for store in stores:
        await store.close()
    versions = await execute(postgresql_url, "select version from bearlake.migration order by version")

    assert len(cluster_ids) == 1
    assert [row[0] for row in versions] == [VERSION]


async def test_versions_increase() -> None:
    versions = [migration.version for migration in available().migrations]

    assert versions == sorted(set(versions))
    assert all(OLDEST < version <= VERSION for version in versions)


async def test_a_store_of_an_older_version_is_migrated_with_its_contents(postgresql_url: str, writer_on: Any) -> None:
    older = await open_postgresql(postgresql_url)
    stream = await older.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(older)
    await writer.commit(writer.object([stream.partition(0)]))
    await older.close()

    newer = await open_postgresql(postgresql_url, layout=NEXT)
    assert await newer.streams.get("orders") == stream
    assert (await newer.log.bounds([stream.partition(0)]))[stream.partition(0)].end == 3
    await newer.close()
    rows = await execute(postgresql_url, "select extra from bearlake.stream")
    assert [row[0] for row in rows] == ["x"]


async def test_a_failed_migration_leaves_no_trace(postgresql_url: str) -> None:
    broken = following(NEXT, "create table bearlake.half (); select 1 / 0")
    with pytest.raises(Invalid):
        await open_postgresql(postgresql_url, layout=broken)
    rows = await execute(postgresql_url, "select to_regclass('bearlake.half'), to_regclass('bearlake.stream')")

    assert tuple(rows[0]) == (None, None)


async def test_a_migration_that_waits_for_a_table_gives_up_in_time_and_names_the_holder(postgresql_url: str) -> None:
    await (await open_postgresql(postgresql_url)).close()
    holder = await asyncpg.connect(postgresql_url, server_settings={"application_name": "a-long-report"})
    limited = PostgresqlSettings(migrate_lock_timeout_ms=2_500)  # longer than the pause between two checks
    async with holder.transaction():
        await holder.execute("select from bearlake.stream for update")
        with pytest.raises(Unavailable, match=r"55P03.*AccessExclusiveLock on stream.*a-long-report") as raised:
            await open_postgresql(postgresql_url, limited, layout=NEXT)
        assert str(holder.get_server_pid()) in str(raised.value)
    await holder.close()
    newer = await open_postgresql(postgresql_url, limited, layout=NEXT)
    await newer.close()


async def test_a_migration_that_waits_for_another_process_names_that_process(postgresql_url: str) -> None:
    await (await open_postgresql(postgresql_url)).close()
    holder = await asyncpg.connect(postgresql_url, server_settings={"application_name": "another-server"})
    async with holder.transaction():
        await holder.fetchval("select pg_advisory_xact_lock($1, $2)", LOCK_CLASS, zlib.crc32(b"bearlake") - 0x8000_0000)
        with pytest.raises(Unavailable, match=r"ExclusiveLock on advisory.*another-server"):
            await open_postgresql(postgresql_url, PostgresqlSettings(migrate_timeout_ms=2_500), layout=NEXT)
    await holder.close()


async def test_a_server_with_a_current_layout_does_not_wait_for_a_migrating_process(
    postgresql_url: str,
) -> None:
    await (await open_postgresql(postgresql_url)).close()
    holder = await asyncpg.connect(postgresql_url)
    async with holder.transaction():
        await holder.fetchval("select pg_advisory_xact_lock($1, $2)", LOCK_CLASS, zlib.crc32(b"bearlake") - 0x8000_0000)
        store = await open_postgresql(postgresql_url, PostgresqlSettings(migrate_timeout_ms=500))
        assert await store.cluster_id()
        await store.close()
    await holder.close()


async def test_a_newer_layout_is_refused(postgresql_url: str) -> None:
    newer = await open_postgresql(postgresql_url, layout=NEXT)
    await newer.close()

    with pytest.raises(Unsupported, match="newer version"):
        await open_postgresql(postgresql_url)


async def test_the_error_for_a_too_old_layout_names_the_remedy(postgresql_url: str) -> None:
    await (await open_postgresql(postgresql_url)).close()
    await execute(postgresql_url, f"update bearlake.migration set version = {OLDEST - 1}")

    with pytest.raises(Unsupported, match=f"open the store once with the version of Bearlake that has layout {OLDEST}"):
        await open_postgresql(postgresql_url)
    rows = await execute(postgresql_url, "select version from bearlake.migration")
    assert [row[0] for row in rows] == [OLDEST - 1]


async def test_the_next_start_finishes_a_start_that_died_after_its_first_transaction(postgresql_url: str) -> None:
    await execute(
        postgresql_url,
        "create schema bearlake",
        "create table bearlake.migration (version integer primary key, name text not null, applied_at timestamptz not null)",
    )
    store = await open_postgresql(postgresql_url)

    assert await store.streams.list() == []
    await store.close()


async def test_schemas_are_separate_stores(postgresql_url: str) -> None:
    first = await open_postgresql(f"{postgresql_url}?schema=one")
    second = await open_postgresql(postgresql_url, PostgresqlSettings(schema="two"))
    await first.streams.create(StreamSpec(name="orders", partition_count=1))

    assert [stream.name for stream in await first.streams.list()] == ["orders"]
    assert not await second.streams.list()
    assert await first.cluster_id() != await second.cluster_id()
    await first.close()
    await second.close()


@pytest.mark.parametrize("schema", ["", "Upper", 'a"b', "a-b", "x" * 49])
def test_a_schema_name_that_is_not_a_plain_word_is_refused(schema: str) -> None:
    with pytest.raises(Invalid, match="schema"):
        PostgresqlSettings(schema=schema)


async def test_settings_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(Invalid, match="connections_max"):
        PostgresqlSettings(connections_max=0)


async def test_a_database_that_loses_commits_is_refused(postgresql_url: str) -> None:
    with pytest.raises(Invalid, match="synchronous_commit"):
        await open_postgresql(f"{postgresql_url}?synchronous_commit=off")


async def test_a_missing_database_and_a_missing_user_have_their_own_error_kinds(postgresql_url: str) -> None:
    with pytest.raises(NotFound):
        await open_postgresql(postgresql_url.rsplit("/", 1)[0] + "/absent")
    with pytest.raises(Denied):
        await open_postgresql(postgresql_url.replace("bearlake@", "absent:hidden-word@"))


@pytest.mark.parametrize("url", ["postgresql://user:hidden-word@host:port/x", "mysql://user:hidden-word@host/x"])
async def test_a_wrong_url_is_invalid_and_shows_no_password(url: str) -> None:
    with pytest.raises(Invalid) as raised:
        await open_postgresql(url)

    assert "hidden-word" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


async def test_the_store_works_without_a_statement_cache(postgresql_url: str, writer_on: Any) -> None:
    metadata = await open_postgresql(postgresql_url, PostgresqlSettings(statement_cache_count=0))
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(metadata)
    committed = await writer.commit(writer.object([stream.partition(0)]))
    await metadata.close()

    assert committed.position == 2
