"""The producer clock in PostgreSQL while requests wait for locks."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import asyncpg

from bearlake.metadata import Metadata
from bearlake.metadata.model import StreamSpec
from fixtures.idle_producers import pass_minutes
from fixtures.waiting import WAIT_S

T = TypeVar("T")

WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


async def after_minutes(backend: Any, metadata: Metadata, table: str, request: Coroutine[Any, Any, T]) -> T:
    """Run a request while another transaction holds the rows of a table that it waits for, and the clock advances by three minutes."""
    holder = await asyncpg.connect(backend.database_url)
    await holder.execute(f"begin; select from bearlake.{table} for no key update")
    asking = asyncio.create_task(request)
    async with asyncio.timeout(WAIT_S):
        while not await holder.fetchval(WAITS):  # noqa: ASYNC110 - PostgreSQL has no event for it
            await asyncio.sleep(0.01)
    await pass_minutes(metadata, 3)
    await holder.execute("rollback")
    await holder.close()
    return await asking


async def test_a_name_is_kept_from_the_reply_on_if_the_request_waited_for_its_partition(
    postgresql_backend: Any,
) -> None:
    metadata = await postgresql_backend.open()
    key = (await metadata.streams.create(StreamSpec(name="orders", partition_count=1))).partition(0)
    first = await after_minutes(postgresql_backend, metadata, "partition_group", metadata.producers.named(key, "name"))
    await metadata.producers.expire(idle_ms=60_000, limit=100)

    assert (await metadata.producers.named(key, "name")).producer_id == first.producer_id


async def test_a_known_name_is_kept_from_the_reply_on_if_the_request_waited_for_its_partition(
    postgresql_backend: Any,
) -> None:
    metadata = await postgresql_backend.open()
    key = (await metadata.streams.create(StreamSpec(name="orders", partition_count=1))).partition(0)
    known = await metadata.producers.named(key, "name")
    await pass_minutes(metadata, 1)
    asked = await after_minutes(postgresql_backend, metadata, "partition_group", metadata.producers.named(key, "name"))
    await metadata.producers.expire(idle_ms=60_000, limit=100)

    assert asked == known
    assert await metadata.producers.named(key, "name") == known


async def test_a_batch_is_kept_from_its_commit_on_if_it_waited_for_the_head_of_the_log(
    postgresql_backend: Any, writer_on: Any
) -> None:
    metadata = await postgresql_backend.open()
    key = (await metadata.streams.create(StreamSpec(name="orders", partition_count=1))).partition(0)
    writer = await writer_on.on(metadata)
    (producer,) = await metadata.producers.allocate(1)
    commit = writer.object([key], producer=producer)
    await after_minutes(postgresql_backend, metadata, "log_head", metadata.log.commit(commit))
    await metadata.producers.expire(idle_ms=60_000, limit=100)

    assert [state.producer_id for state in await metadata.log.producers(key)] == [producer]


async def test_a_busy_partition_delays_neither_the_expiry_of_other_partitions_nor_their_commits(
    postgresql_backend: Any, writer_on: Any
) -> None:
    metadata = await postgresql_backend.open()
    streams = [await metadata.streams.create(StreamSpec(name=name, partition_count=1)) for name in ("a", "busy", "c")]
    keys = [stream.partition(0) for stream in streams]
    writer = await writer_on.on(metadata)
    ids = await metadata.producers.allocate(len(keys))
    for key, producer in zip(keys, ids, strict=True):
        commit = writer.object([key], producer=producer)
        await metadata.log.commit(replace(commit, batches=[commit.batches[0]._replace(base_sequence=0)]))
    await pass_minutes(metadata, 3)
    holder = await asyncpg.connect(postgresql_backend.database_url)
    await holder.execute(
        f"begin; select from bearlake.partition_group where group_key = {keys[1] >> 5} for no key update"
    )
    forgotten = await metadata.producers.expire(idle_ms=60_000, limit=100)
    left = [[state.producer_id for state in await metadata.log.producers(key)] for key in keys]
    await holder.execute("rollback")
    await holder.close()

    assert forgotten == 2
    assert left == [[], [ids[1]], []]
    assert await metadata.producers.expire(idle_ms=60_000, limit=100) == 1


async def test_producers_of_deleted_streams_are_forgotten(postgresql_backend: Any, writer_on: Any) -> None:
    metadata = await postgresql_backend.open()
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(metadata)
    (producer,) = await metadata.producers.allocate(1)
    await metadata.log.commit(writer.object([stream.partition(0)], producer=producer))
    await metadata.streams.delete(stream.number)
    await pass_minutes(metadata, 3)
    await metadata.producers.expire(idle_ms=60_000, limit=100)

    admin = await asyncpg.connect(postgresql_backend.database_url)
    assert await admin.fetchval("select count(*) from bearlake.producer") == 0
    await admin.close()
