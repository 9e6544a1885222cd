"""What statements and waits do not cost: a task for the loan of a connection, and a read of the head for each wait (decision 313)."""

import asyncio
from typing import Any

import asyncpg
import pytest

from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql_metadata import Opening, until
from fixtures.waiting import WAIT_S

SETTINGS = PostgresqlSettings(poll_interval_ms=3_600_000, poll_interval_listening_ms=3_600_000)
LISTENING = "select 1 from pg_stat_activity where query ilike 'listen%' and state = 'idle'"


async def test_a_statement_on_an_idle_connection_starts_no_task(
    postgresql_url: str, opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(postgresql_url)
    await store.log.head()
    await store.streams.create(StreamSpec(name="before", partition_count=1))
    loop = asyncio.get_running_loop()
    begun, create = [], loop.create_task

    def counted(work: Any, **options: Any) -> asyncio.Task[Any]:
        begun.append(repr(work))
        return create(work, **options)

    monkeypatch.setattr(loop, "create_task", counted)
    await store.log.head()
    await store.streams.create(StreamSpec(name="orders", partition_count=1))

    assert begun == []


async def test_waiters_that_listen_do_not_read_the_head_each_time(
    postgresql_url: str, opened: Opening, writer_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await opened(postgresql_url), await opened(postgresql_url)
    stream = await other.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(other)
    admin = await asyncpg.connect(postgresql_url)
    reads, run = [], Database._run

    async def counted(database: Database, statement: str, *given: Any) -> Any:
        if database is store._database:
            reads.append(statement)
        return await run(database, statement, *given)

    try:
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            group.create_task(store.log.wait(1, wait_ms=3_600_000))
            await until(admin, LISTENING)
            await writer.commit(writer.object([stream.partition(0)]))
        monkeypatch.setattr(Database, "_run", counted)
        for turn in range(3):
            async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
                group.create_task(store.log.wait(2 + turn, wait_ms=3_600_000))
                await writer.commit(writer.object([stream.partition(0)]))

        assert reads == []
    finally:
        await admin.close()
