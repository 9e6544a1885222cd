"""An administrator's settings of the role or the database shorten neither the lifetime of connections nor their statements."""

from urllib.parse import urlsplit, urlunsplit

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
    )  # the limits are measured in the database's time
    await store.streams.create(StreamSpec(name="bills", partition_count=1))

    assert [stream.name for stream in await store.streams.list()] == ["bills", "orders"]
    assert await admin.fetch(BACKENDS) == before


async def test_a_user_without_the_right_to_read_the_timeline_is_served(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection
) -> None:
    database = await admin.fetchval("select current_database()")
    user = f"narrow_{database}"
    await admin.execute(f"create role {user} login; grant create on database {database} to {user}")
    await admin.execute("revoke execute on function pg_control_system() from public")
    store = await opened(urlunsplit(urlsplit(postgresql_url)._replace(netloc=_as_user(postgresql_url, user))))
    try:
        await store.streams.create(StreamSpec(name="orders", partition_count=1))

        assert [stream.name for stream in await store.streams.list()] == ["orders"]
    finally:
        await store.close()
        await admin.execute(f"drop owned by {user} cascade; drop role {user}")


def _as_user(url: str, user: str) -> str:
    parts = urlsplit(url)
    return f"{user}@{parts.hostname}:{parts.port}"
