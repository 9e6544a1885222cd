"""Upgrades while programs of the previous version run: their transactions, and how an incompatible migration stops their writes (decision
101)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from bearlake.errors import Unsupported
from bearlake.metadata import Metadata
from bearlake.metadata.model import ObjectCommit, ObjectCommitted, StreamSpec
from bearlake.metadata.postgresql.layout import OLDEST, VERSION, available
from bearlake.metadata.postgresql.migrate import migrate
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql_metadata import Opening, following, until

SETTINGS = PostgresqlSettings(connections_max=2, poll_interval_ms=5)
BREAKING = following(
    available(),
    """
create or replace function bearlake.begin_session(p_id bigint) returns void language plpgsql as $$
begin
    raise exception 'the layout needs a newer version of Bearlake' using errcode = 'BL012';
end $$;
delete from bearlake.session;
""",
)
BREAKING = replace(BREAKING, functions=[*BREAKING.functions, BREAKING.migrations[-1].script])

NEXT = following(available(), "alter table bearlake.cluster add column extra text not null default 'x'")
TABLES_OF_LAYOUT_32 = """
drop table bearlake.table_columns;
drop table bearlake.transactional_id, bearlake.open_transaction, bearlake.aborted_transaction, bearlake.pending_offset cascade;
alter table bearlake.log drop column transactions;
"""
"""Takes back the tables of typed columns and of transactions, and with these the functions that return their rows."""

TABLES_OF_LAYOUT_26 = f"""
{TABLES_OF_LAYOUT_32}
drop table bearlake.user_state, bearlake.user_credential, bearlake.access_state, bearlake.access_rule, bearlake.quota_state,
    bearlake.quota;
alter table bearlake.cluster drop column producer_minute;
alter table bearlake.producer drop column used_minute, add column updated_hour integer not null default 0;
create index producer_updated on bearlake.producer (updated_hour);
alter table bearlake.producer_name drop column asked_minute, add column asked_ms bigint not null default 0;
create index producer_name_asked on bearlake.producer_name (asked_ms);
delete from bearlake.migration;
insert into bearlake.migration values ({OLDEST}, 'former', now());
"""
"""Takes the changes of later migrations back."""
IS_AWAITED = "select exists (select from pg_locks where not granted and locktype = 'relation')"
ARE_BOTH_AWAITED = "select count(*) = 2 from pg_locks where not granted and locktype = 'relation'"


def decisions_of_layout_31() -> str:
    """Return a script that gives the functions which decide batches the names of layout 31, and the store its number."""
    scripts = [script for script in available().functions if "decide_named" in script or "decide_idempotent" in script]
    names = "drop function bearlake.decide_named, bearlake.decide_idempotent"
    number = "delete from bearlake.migration; insert into bearlake.migration values (31, 'former', now())"
    return f"{TABLES_OF_LAYOUT_32} {names}; {number}; " + "".join(scripts).replace(
        "decide_named", "judge_named"
    ).replace("decide_idempotent", "judge_idempotent")


@pytest.fixture
async def running(postgresql_url: str, admin: asyncpg.Connection) -> AsyncIterator[asyncpg.Connection]:
    """A connection of a program of the previous version, which is never the victim of a deadlock."""
    await (await open_postgresql(postgresql_url, SETTINGS)).close()
    running = await asyncpg.connect(postgresql_url)
    await running.execute("set deadlock_timeout = '1h'")
    yield running
    await running.close()


@pytest.mark.parametrize("tables", [("partition_group", "cluster"), ("cluster", "partition_group")])
async def test_a_migration_completes_while_a_transaction_touches_tables_in_any_order(
    postgresql_url: str,
    opened: Opening,
    admin: asyncpg.Connection,
    running: asyncpg.Connection,
    tables: tuple[str, str],
) -> None:
    first, second = tables
    async with running.transaction():
        await running.execute(f"select from bearlake.{first} for no key update")
        newer = asyncio.create_task(open_postgresql(postgresql_url, SETTINGS, layout=NEXT))
        await until(admin, IS_AWAITED)
        await running.execute(f"select from bearlake.{second} for no key update")

    metadata = await newer
    await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    await metadata.close()


async def test_servers_of_layout_26_continue_during_and_after_the_upgrade(
    postgresql_url: str,
    opened: Opening,
    admin: asyncpg.Connection,
    writer_on: Any,
    commit_as_before: Callable[[Metadata, ObjectCommit], Awaitable[ObjectCommitted]],
) -> None:
    former = await opened(postgresql_url)
    stream = await former.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(former)
    await admin.execute(TABLES_OF_LAYOUT_26)
    is_upgraded = asyncio.Event()
    committed: list[ObjectCommitted] = []

    async def append() -> None:
        remaining = 5
        while remaining:
            remaining -= is_upgraded.is_set()
            committed.append(await commit_as_before(former, writer.object([stream.partition(0)], record_count=1)))

    async with asyncio.TaskGroup() as group:
        group.create_task(append())
        newer = await opened(postgresql_url)
        is_upgraded.set()

    assert await admin.fetchval("select max(version) from bearlake.migration") == VERSION
    assert [result.outcomes[0].base_offset for result in committed] == list(range(len(committed)))
    assert [stream.name for stream in await former.streams.list()] == [
        stream.name for stream in await newer.streams.list()
    ]


async def test_a_commit_of_layout_31_that_the_upgrade_overtakes_is_committed_once(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection, running: asyncpg.Connection, writer_on: Any
) -> None:
    former = await opened(postgresql_url)
    stream = await former.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(former)
    await admin.execute(decisions_of_layout_31())
    async with running.transaction():
        await running.execute("lock table bearlake.partition_group in exclusive mode")
        newer = asyncio.ensure_future(opened(postgresql_url))
        await until(admin, IS_AWAITED)
        overtaken = asyncio.create_task(former.log.commit(writer.object([stream.partition(0)], producer=7)))
        await until(admin, ARE_BOTH_AWAITED)  # the upgrade is first in the line; the former commit_object runs

    assert [outcome.base_offset for outcome in (await overtaken).outcomes] == [0]
    assert (await (await newer).log.bounds([stream.partition(0)]))[stream.partition(0)].end == 3
    assert await admin.fetchval("select max(version) from bearlake.migration") == VERSION
    assert await admin.fetchval("select count(*) from pg_proc where proname like 'judge%'") == 0


async def test_servers_can_read_during_an_upgrade_of_functions(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    former = await opened(postgresql_url)
    stream = await former.streams.create(StreamSpec(name="orders", partition_count=1))
    reader = await asyncpg.connect(postgresql_url)
    async with reader.transaction():
        await reader.execute("select from bearlake.partition_group")  # a lock for which table changes wait
        newer = await open_postgresql(postgresql_url, SETTINGS, layout=replace(available(), version=VERSION + 1))

    assert (await newer.log.bounds([stream.partition(0)]))[stream.partition(0)].end == 0
    await newer.close()
    await reader.close()


async def test_older_programs_read_and_write_nothing_after_an_incompatible_migration(
    postgresql_url: str, opened: Opening
) -> None:
    older = await opened(postgresql_url)
    await older.streams.create(StreamSpec(name="orders", partition_count=1))
    other = await opened(postgresql_url)
    await migrate(other._database, BREAKING)

    for _ in range(2):
        with pytest.raises(Unsupported, match="newer version"):
            await older.streams.create(StreamSpec(name="bills", partition_count=1))
        assert [stream.name for stream in await older.streams.list()] == ["orders"]
    with pytest.raises(Unsupported):
        await opened(postgresql_url)
