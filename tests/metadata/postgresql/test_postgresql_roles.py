"""An administrator's settings of the role or the database shorten neither the lifetime of connections nor their statements."""

import asyncpg
import pytest

from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql_metadata import Opening

SETTINGS = PostgresqlSettings(connections_max=1, read_connections_max=1, poll_interval_ms=5)
BACKENDS = (
    "select pid from pg_stat_activity where application_name = 'bearlake' and datname = current_database() order by 1"
)


@pytest.mark.parametrize(
    "setting",
    [
        "idle_session_timeout = '20ms'",
        "idle_in_transaction_session_timeout = '1ms'",
        "statement_timeout = '1ms'",
        "lock_timeout = '1ms'",
        "default_transaction_isolation = 'serializable'",
        "plan_cache_mode = 'force_custom_plan'",
        "search_path = 'pg_temp'",
    ],
)
async def test_limits_of_the_role_end_neither_statements_nor_connections(
    setting: str, postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    database = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {database} set {setting}")
    store = await opened(postgresql_url)
    await store.streams.create(StreamSpec(name="orders", partition_count=1))
    before = await admin.fetch(BACKENDS)
    await admin.execute(
        "set statement_timeout = 0; select pg_sleep(0.2)"
    )  # the database's time, which its limits measure
    await store.streams.create(StreamSpec(name="bills", partition_count=1))

    assert [stream.name for stream in await store.streams.list()] == ["bills", "orders"]
    assert await admin.fetch(BACKENDS) == before
