"""Upgrades while programs of the version before run: their transactions, and how a migration that breaks them stops their writes (decision
101)."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from bearlake.errors import Unsupported
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.migrate import Migration, available, migrate
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql_metadata import Opening, until

SETTINGS = PostgresqlSettings(connections_max=2, poll_interval_ms=5)
BREAKING = Migration(
    available()[-1].version + 1,
    "breaking",
    """
create or replace function bearlake.begin_session(p_id bigint) returns void language plpgsql as $$
begin
    raise exception 'the layout needs a newer version of Bearlake' using errcode = 'BL012';
end $$;
delete from bearlake.session;
""",
)

OLDER = [step for step in available() if step.version <= 23]
IS_AWAITED = "select exists (select from pg_locks where not granted and locktype = 'relation')"


@pytest.fixture
async def running(postgresql_url: str, admin: asyncpg.Connection) -> AsyncIterator[asyncpg.Connection]:
    """A connection of a program of the version before, which is never the victim of a deadlock."""
    await (await open_postgresql(postgresql_url, SETTINGS, migrations=OLDER)).close()
    running = await asyncpg.connect(postgresql_url)
    await running.execute("set deadlock_timeout = '1h'")
    yield running
    await running.close()


@pytest.mark.parametrize("tables", [("partition_group", "cluster"), ("cluster", "partition_group")])
async def test_a_migration_ends_when_a_transaction_touches_tables_in_any_order(
    postgresql_url: str,
    opened: Opening,
    admin: asyncpg.Connection,
    running: asyncpg.Connection,
    tables: tuple[str, str],
) -> None:
    first, second = tables
    async with running.transaction():
        await running.execute(f"select from bearlake.{first} for no key update")
        newer = asyncio.create_task(opened(postgresql_url))
        await until(admin, IS_AWAITED)
        await running.execute(f"select from bearlake.{second} for no key update")

    await (await newer).streams.create(StreamSpec(name="orders", partition_count=1))


async def test_older_programs_read_and_write_nothing_after_a_migration_that_breaks_them(
    postgresql_url: str, opened: Opening
) -> None:
    older = await opened(postgresql_url)
    await older.streams.create(StreamSpec(name="orders", partition_count=1))
    other = await opened(postgresql_url)
    await migrate(other._database, [*available(), BREAKING])

    for _ in range(2):
        with pytest.raises(Unsupported, match="newer version"):
            await older.streams.create(StreamSpec(name="bills", partition_count=1))
        assert [stream.name for stream in await older.streams.list()] == ["orders"]
    with pytest.raises(Unsupported):
        await opened(postgresql_url)
