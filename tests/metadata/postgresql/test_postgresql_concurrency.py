"""Several servers commit to the same partitions at once: no deadlock, no gap, and a follower misses nothing."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import asyncpg

from bearlake.errors import Fenced
from bearlake.metadata import Metadata
from bearlake.metadata.model import PartitionKey, StreamSpec
from fixtures.postgresql_metadata import START_MS, until
from fixtures.waiting import WAIT_S

RECORDS = 3


async def follow(metadata: Metadata, commit_count: int, partitions: list[PartitionKey]) -> dict[PartitionKey, int]:
    """Follow the log as a server does until this many commits were seen; each entry must fit the entries before it."""
    position, seen = 0, 0
    ends = dict.fromkeys(partitions, 0)
    while seen < commit_count:
        page = await metadata.log.follow(position, limit=7)
        for entry in page.entries:
            assert entry.position == position + 1
            position = entry.position
            seen += bool(entry.object_key)
            for slice_ in entry.slices:
                assert slice_.base_offset == ends[slice_.partition], "I2: an entry was missed"
                ends[slice_.partition] = slice_.end_offset
        if not page.entries:
            await metadata.log.wait(position, wait_ms=1_000)
    return ends


async def test_interleaving_commits_neither_deadlock_nor_leave_gaps(postgresql_backend: Any, writer_on: Any) -> None:
    handles = [await postgresql_backend.open() for _ in range(3)]
    streams = [await handles[0].streams.create(StreamSpec(name=f"s{i}", partition_count=50)) for i in range(3)]
    partitions = [stream.partition(i) for stream in streams for i in range(50)]
    object_count = 30
    expected = dict.fromkeys(partitions, 0)

    async def write(handle: Metadata, name: str, seed: int) -> None:
        chance = random.Random(seed)
        writer = await writer_on.on(handle, name)
        for _ in range(object_count):
            chosen = chance.sample(partitions, 60)  # in no order: the store must order its locks itself
            committed = await handle.log.commit(writer.object(chosen))
            assert committed.position > 0
            for key in chosen:
                expected[key] += RECORDS

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        followed = group.create_task(follow(await postgresql_backend.open(), 6 * object_count, partitions))
        for i in range(6):
            group.create_task(write(handles[i % 2], f"server-{i}", i))
        for _ in range(10):
            await handles[2].log.maintain(entry_count_min=1_000)

    assert followed.result() == expected
    deadlocks = await postgresql_backend.execute(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    assert [tuple(row) for row in deadlocks] == [(0,)]


async def test_a_token_committed_by_two_callers_at_once_is_committed_once(
    postgresql_backend: Any, writer_on: Any
) -> None:
    handles = [await postgresql_backend.open() for _ in range(2)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=2))
    writer = await writer_on.on(handles[0])
    for turn in range(20):
        commit = writer.object([stream.partition(0), stream.partition(1)])
        results = await asyncio.gather(*(handle.log.commit(commit) for handle in (*handles, *handles)))

        assert all(result == results[0] for result in results)
        assert results[0].outcomes[0].base_offset == turn * RECORDS


async def test_a_forbidden_token_and_its_commit_exclude_each_other(postgresql_backend: Any, writer_on: Any) -> None:
    handles = [await postgresql_backend.open() for _ in range(2)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(handles[0])
    for _ in range(20):
        commit = writer.object([stream.partition(0)])
        committed, forbidden = await asyncio.gather(
            handles[0].log.commit(commit), handles[1].log.forbid([commit.token]), return_exceptions=True
        )

        assert isinstance(committed, BaseException) == (forbidden == {commit.token})


async def test_a_token_that_is_forgotten_while_its_commit_runs_is_refused(
    postgresql_backend: Any, writer_on: Any
) -> None:
    """I8: the commit finds the token forbidden, or the floor above it; at least one of them."""
    handles = [await postgresql_backend.open() for _ in range(3)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=1))
    for turn in range(20):
        writer = await writer_on.on(handles[0])
        commit = replace(writer.object([stream.partition(0)]), token=f"wal/2023111422/{turn:04}")
        await handles[0].log.forbid([commit.token])
        await postgresql_backend.advance(8 * 24 * 3_600_000)
        results = await asyncio.gather(
            handles[0].log.commit(commit),
            handles[1].log.maintain(entry_count_min=0),
            handles[2].log.commit(commit),
            return_exceptions=True,
        )

        assert isinstance(results[0], Fenced)
        assert isinstance(results[2], Fenced)
    assert (await handles[0].log.bounds([stream.partition(0)]))[stream.partition(0)].end == 0


async def test_registration_fences_commits_that_run_at_the_same_time(postgresql_backend: Any, writer_on: Any) -> None:
    handles = [await postgresql_backend.open() for _ in range(2)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=1))
    for turn in range(20):
        writer = await writer_on.on(handles[0])
        commit = replace(writer.object([stream.partition(0)]), token=f"wal/{turn}")
        head = await handles[0].log.head()

        async def register_then_head() -> int:
            await writer_on.on(handles[1])
            return int(await handles[1].log.head())

        committed, head_after = await asyncio.gather(
            handles[0].log.commit(commit), register_then_head(), return_exceptions=True
        )

        # Once the newer epoch is registered, nothing of the older one becomes visible any more.
        assert isinstance(committed, BaseException) or committed.position <= head_after
        assert await handles[0].log.head() == (head if isinstance(committed, BaseException) else head + 1)


async def test_the_times_of_commits_follow_the_order_of_the_log(postgresql_backend: Any, writer_on: Any) -> None:
    """A commit that waits for the head of the log gets the time at which it takes its position."""
    metadata = await postgresql_backend.open()
    key = (await metadata.streams.create(StreamSpec(name="orders", partition_count=1))).partition(0)
    writer = await writer_on.on(metadata)
    holder = await asyncpg.connect(postgresql_backend.database_url)
    await holder.execute("begin; select from bearlake.log_head for no key update")
    waiting = asyncio.create_task(metadata.log.commit(writer.object([key])))
    await until(holder, "select exists (select from pg_locks where not granted)")
    await postgresql_backend.advance(5_000)
    await holder.execute("rollback")
    await waiting
    await metadata.log.commit(writer.object([key]))
    times = await holder.fetch("select committed_ms from bearlake.object where number > 0 order by number")
    await holder.close()

    assert [row[0] - START_MS for row in times] == [5_000, 5_000]
