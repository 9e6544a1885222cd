"""A store that is closed leaves no connection, also if the one who closes it is cancelled."""

import asyncio

import asyncpg
import pytest

from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql_metadata import Opening
from fixtures.waiting import WAIT_S

SETTINGS = PostgresqlSettings(connections_max=2, read_connections_max=2)
OPEN = "select count(*) from pg_stat_activity where application_name = 'bearlake' and datname = current_database()"


@pytest.mark.parametrize("steps", range(1, 5))
async def test_a_close_that_is_cancelled_leaves_no_connection(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection, steps: int
) -> None:
    metadata = await opened(postgresql_url, SETTINGS)
    await admin.execute("begin")
    await admin.execute("lock table bearlake.cluster")  # a read waits for it
    reading = asyncio.ensure_future(metadata.cluster_id())
    async with asyncio.timeout(WAIT_S):
        while not await admin.fetchval("select count(*) from pg_locks where not granted"):
            pass
    closing = asyncio.ensure_future(metadata.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing, reading])
    await admin.execute("rollback")

    async with asyncio.timeout(WAIT_S):
        while await admin.fetchval(OPEN):
            pass
