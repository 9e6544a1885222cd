"""A server is revived while another one takes its lease: PostgreSQL lets one wait for the other, so that no lapse goes unseen."""

import asyncio
from typing import Any

import asyncpg
import pytest

from bearlake.errors import Conflict
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import ServerRef
from fixtures.liveness import lapse
from fixtures.waiting import WAIT_S

WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


async def register(metadata: Metadata, name: str) -> ServerRef:
    return (
        await registering.register(metadata.servers, name, zone=None, endpoints={}, version="", timeout_ms=6_000)
    ).server


async def until_one_waits(session: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await session.fetchval(WAITS):  # noqa: ASYNC110 - PostgreSQL has no event for it
            await asyncio.sleep(0.01)


async def test_a_lapsed_server_is_revived_after_a_concurrent_take_over_of_its_lease(postgresql_backend: Any) -> None:
    metadata = await postgresql_backend.open()
    a, b = await register(metadata, "a"), await register(metadata, "b")
    await metadata.leases.acquire("lease", a)
    assert await lapse(metadata, a)
    taker = await asyncpg.connect(postgresql_backend.database_url)
    watcher = await asyncpg.connect(postgresql_backend.database_url)

    await taker.execute("begin")
    await taker.fetchval("select bearlake.acquire_lease('lease', $1, $2)", b.node_id, b.epoch)
    beating = asyncio.create_task(metadata.servers.heartbeat(a))
    await until_one_waits(watcher)  # otherwise A could look up its lease and still find itself as the holder
    await taker.execute("commit")

    assert await beating == 1
    lease = await metadata.leases.holder("lease")
    assert lease is not None
    assert lease.holder == b
    await taker.close()
    await watcher.close()


async def test_a_lease_is_not_taken_from_a_server_that_is_being_revived(postgresql_backend: Any) -> None:
    metadata = await postgresql_backend.open()
    a, b = await register(metadata, "a"), await register(metadata, "b")
    lease = await metadata.leases.acquire("lease", a)
    assert await lapse(metadata, a)
    reviver = await asyncpg.connect(postgresql_backend.database_url)
    watcher = await asyncpg.connect(postgresql_backend.database_url)

    await reviver.execute("begin")
    await reviver.fetchval("select bearlake.beat_server($1, $2)", a.node_id, a.epoch)
    taking = asyncio.create_task(metadata.leases.acquire("lease", b))
    await until_one_waits(watcher)
    await reviver.execute("commit")

    with pytest.raises(Conflict):
        await taking
    assert await metadata.leases.holder("lease") == lease
    await reviver.close()
    await watcher.close()
