"""Statements that name what an upgrade has removed: a repeat succeeds, or the error says that nothing was changed."""

import asyncio
from typing import Any

import asyncpg
import pytest

from bearlake.errors import Overloaded, Unavailable
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.layout import VERSION, available
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import PostgresqlMetadata
from fixtures.postgresql_metadata import Opening, until
from fixtures.postgresql_proxy import Proxy

SETTINGS = PostgresqlSettings(connections_max=1, poll_interval_ms=5, connect_timeout_ms=2_000)
IS_AWAITED = "select exists (select from pg_locks where not granted and locktype = 'relation')"
EFFECTS = """
create table bearlake.effect (n bigint);
create function bearlake.take_effect(p_count_max bigint) returns void language plpgsql as $$
begin
    if (select count(*) from bearlake.effect) >= p_count_max then
        perform bearlake.gone();
    end if;
    insert into bearlake.effect values (1);
end $$;
"""
"""A function that has an effect, and that is undefined once there are `p_count_max` effects."""
TAKE_EFFECT = "select bearlake.take_effect($1)"
GONE = """
create sequence bearlake.attempt;
create function bearlake.count_attempt() returns void language plpgsql as $$
begin
    perform nextval('bearlake.attempt');
    perform {gone};
end $$;
"""
"""A function that counts its calls, which roll back, and always names what does not exist."""


@pytest.fixture
async def metadata(postgresql_url: str, opened: Opening) -> PostgresqlMetadata:
    return await opened(postgresql_url)


def renamed_batches() -> str:
    """A script that renames a column which commits read, with the functions that name it."""
    scripts = [script for script in available().functions if "p.batches" in script or "batches = u.batches" in script]
    functions = "".join(scripts).replace("p.batches", "p.remembered").replace("batches = u", "remembered = u")
    return f"alter table bearlake.producer rename column batches to remembered; {functions}"


async def test_a_commit_that_an_upgrade_overtakes_is_committed(
    metadata: PostgresqlMetadata, admin: asyncpg.Connection, writer_on: Any
) -> None:
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(metadata)
    first = writer.object([stream.partition(0)], producer=7)
    await metadata.log.commit(first)
    async with admin.transaction():
        await admin.execute("lock table bearlake.partition_group in access exclusive mode")
        overtaken = asyncio.create_task(metadata.log.commit(writer.object([stream.partition(0)], producer=7)))
        await until(admin, IS_AWAITED)  # the old body runs, and has not planned the statement that reads the producers
        await admin.execute(renamed_batches())

    assert [outcome.base_offset for outcome in (await overtaken).outcomes] == [3]


@pytest.mark.parametrize(
    ("gone", "code"),
    [("bearlake.gone()", "42883"), ("x.gone from bearlake.stream x", "42703"), ("1 from bearlake.gone", "42P01")],
)
async def test_a_write_that_names_a_missing_function_fails_and_changes_nothing(
    metadata: PostgresqlMetadata, admin: asyncpg.Connection, gone: str, code: str
) -> None:
    await admin.execute(GONE.format(gone=gone))
    with pytest.raises(Overloaded, match=rf"nothing was changed: .*layout {VERSION}, .*\({code}\).*gone"):
        await metadata._database.rows("select bearlake.count_attempt()", is_repeatable=False)

    assert await admin.fetchval("select last_value from bearlake.attempt") == 3


async def test_a_read_that_names_a_missing_function_can_be_repeated(
    metadata: PostgresqlMetadata, admin: asyncpg.Connection
) -> None:
    await admin.execute("drop function bearlake.max_timestamp")
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    with pytest.raises(Unavailable, match=r"\(42883\).*max_timestamp"):
        await metadata.log.locate_max_timestamp(stream.partition(0))


async def test_a_write_whose_lost_attempt_may_have_happened_does_not_claim_that_nothing_was_changed(
    lossy: tuple[PostgresqlMetadata, Proxy], admin: asyncpg.Connection
) -> None:
    metadata, proxy = lossy
    await admin.execute(EFFECTS)
    await metadata._database.rows(TAKE_EFFECT, 2)  # the statement is prepared on the connection then
    proxy.loses_next_answer = True
    with pytest.raises(Unavailable, match="a lost attempt may have happened"):
        await metadata._database.rows(TAKE_EFFECT, 2)

    assert await admin.fetchval("select count(*) from bearlake.effect") == 2


async def test_a_commit_whose_token_is_decided_does_not_claim_that_nothing_was_changed(
    metadata: PostgresqlMetadata, admin: asyncpg.Connection, writer_on: Any
) -> None:
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(metadata)
    commit = writer.object([stream.partition(0)])
    await metadata.log.commit(commit)
    await admin.execute("drop function bearlake.token_result")
    with pytest.raises(Unavailable):
        await metadata.log.commit(commit)
