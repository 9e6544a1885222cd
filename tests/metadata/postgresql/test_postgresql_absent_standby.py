"""Without the synchronous standby nothing can be written: writes leave few backends waiting, and all reads continue."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.postgresql.layout import available
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql_metadata import following, until
from fixtures.postgresql_pair import SETTINGS, Client, Pair
from fixtures.postgresql_proxy import Proxy

pytestmark = pytest.mark.integration

BACKENDS = "from pg_stat_activity where application_name = 'bearlake' and datname = current_database()"
LEFT_BEHIND = f"select count(*) {BACKENDS} and wait_event = 'SyncRep'"
ONLY_THOSE = f"select not exists (select {BACKENDS} and wait_event is distinct from 'SyncRep')"
NEXT = following(available(), "alter table bearlake.stream add column extra text not null default 'x'")
PROCESS_COUNT = 12
BACKEND_COUNT_MAX = 8
LOOKING = replace(SETTINGS, migrate_timeout_ms=2_500)
"""Waits for more than `waiting.LOOK_S`."""
IMPATIENT = replace(SETTINGS, client_check_interval_ms=50, migrate_timeout_ms=500)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def client(pair: Pair, stack: AsyncExitStack) -> Client:
    """A process that has written."""
    client = await Client.on(pair)
    stack.push_async_callback(client.metadata.close)
    await client.append_in_the_end("0")
    return client


@pytest.fixture
async def admin(pair: Pair, stack: AsyncExitStack) -> asyncpg.Connection:
    admin = await asyncpg.connect(pair.url)
    stack.push_async_callback(admin.close)
    return admin


async def write_in_vain(client: Client, token: str) -> None:
    with pytest.raises(Unavailable):
        await client.append(token)


async def test_repeatedly_restarted_processes_leave_few_backends_waiting(
    pair: Pair, client: Client, admin: asyncpg.Connection
) -> None:
    await client.metadata.close()
    pair.standby.kill()

    async def start_and_die(token: str) -> None:
        process = await client.elsewhere(pair)
        await write_in_vain(process, token)
        await process.metadata.close()

    for turn in range(2):
        await asyncio.gather(*(start_and_die(f"{turn}/{i}") for i in range(PROCESS_COUNT)))
    await until(admin, ONLY_THOSE)
    assert 1 <= await admin.fetchval(LEFT_BEHIND) <= BACKEND_COUNT_MAX

    pair.bring_standby_back()
    process = await client.elsewhere(pair)
    assert (await process.append_in_the_end("1")).outcomes[0].base_offset == 1
    await process.metadata.close()
    await until(admin, f"select not exists (select {BACKENDS})")


async def test_processes_that_lost_their_sessions_leave_few_backends_waiting(pair: Pair, client: Client) -> None:
    processes = [await client.elsewhere(pair) for _ in range(PROCESS_COUNT)]
    for i, process in enumerate(processes):
        await process.append_in_the_end(f"first/{i}")
    pair.standby.kill()
    pair.primary.restart(crash=True)
    await asyncio.gather(*(write_in_vain(process, f"second/{i}") for i, process in enumerate(processes)))
    await asyncio.gather(*(process.metadata.close() for process in [client, *processes]))
    admin = await asyncpg.connect(pair.url)
    await until(admin, ONLY_THOSE)

    assert 1 <= await admin.fetchval(LEFT_BEHIND) <= BACKEND_COUNT_MAX
    await admin.close()
    pair.bring_standby_back()


async def test_a_migration_without_a_standby_lets_running_servers_read(
    pair: Pair, client: Client, admin: asyncpg.Connection
) -> None:
    pair.standby.kill()
    for _ in range(3):  # as a process that is started repeatedly
        with pytest.raises(Unavailable):
            await open_postgresql(pair.url, IMPATIENT, layout=NEXT)
        assert [stream.name for stream in await client.metadata.streams.list()] == ["orders"]
    again = await client.elsewhere(pair)  # the program from before starts and reads, too
    assert await again.end() == 1
    await again.metadata.close()
    assert await admin.fetchval(LEFT_BEHIND) == 1
    pair.bring_standby_back()

    newer = await open_postgresql(pair.url, layout=NEXT)
    assert [stream.name for stream in await newer.streams.list()] == ["orders"]
    await newer.close()
    assert await admin.fetchval("select extra from bearlake.stream") == "x"


async def test_a_migration_that_waits_for_a_standby_reports_this(pair: Pair, client: Client) -> None:
    pair.standby.kill()
    names = r"synchronous_standby_names is '\*', connected standbys: none"
    with pytest.raises(Unavailable, match=f"waited for a synchronous standby: {names}"):
        await open_postgresql(pair.url, LOOKING, layout=NEXT)
    with pytest.raises(Unavailable, match=f"advisory, held by process .* waits for a synchronous standby.*{names}"):
        await open_postgresql(pair.url, LOOKING, layout=NEXT)
    pair.bring_standby_back()

    await (await open_postgresql(pair.url, layout=NEXT)).close()


async def test_no_connection_is_made_to_a_standby(pair: Pair, client: Client, stack: AsyncExitStack) -> None:
    proxy = Proxy(pair.url)
    url = await proxy.start()
    stack.push_async_callback(proxy.stop)
    process = await open_postgresql(url, SETTINGS)
    stack.push_async_callback(process.close)
    proxy.target = urlsplit(pair.standby.url(pair.database))

    with pytest.raises(Unavailable, match="leads to a standby"):
        await process._database.connect(1_000)
