"""Concurrent compaction on PostgreSQL: claims do not block each other, and swaps, commits, trims and upkeep do not deadlock."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from bearlake.errors import Conflict
from bearlake.metadata import Metadata, registering
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, Task, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.model import (
    BatchCommit,
    Lease,
    ObjectCommit,
    ObjectKind,
    ObjectRef,
    PartitionKey,
    ServerRef,
    Slice,
    StreamSpec,
    stream_number,
)
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures import by_name
from fixtures.compaction_scene import joined

SMALL = PostgresqlSettings(
    connections_max=4, page_slice_count_max=8, roll_entry_count_max=20, roll_slice_count_max=60, sweep_page_count_max=10
)
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"
MISCOUNTED = """
select o.key, o.slice_count, coalesce(n.row_count, 0), o.unused_ms
  from bearlake.object o
  left join (select u.number, count(*) as row_count from bearlake.index_page p, unnest(p.objects) u (number) group by u.number) n
    on n.number = o.number
 where o.number <> -1 and (o.slice_count <> coalesce(n.row_count, 0) or (o.slice_count = 0) <> (o.unused_ms is not null))"""


async def register(metadata: Metadata, name: str) -> ServerRef:
    registration = await registering.register(
        metadata.servers, name, zone=None, endpoints={}, version="1", timeout_ms=600_000
    )
    return registration.server


async def maintain(metadata: Metadata) -> None:
    """Run maintenance until everything is rolled up and swept."""
    for _ in range(50):
        await metadata.log.maintain(entry_count_min=0)


async def commit_all(metadata: Metadata, server: ServerRef, partitions: list[PartitionKey], turn: int = 0) -> None:
    """One object with a batch of three records (two in later turns) of 100 bytes for each partition."""
    await commit(metadata, server, partitions, f"all/{turn:06}", 2 if turn or len(partitions) < 50 else 3)


async def commit(metadata: Metadata, server: ServerRef, partitions: list[PartitionKey], token: str, count: int) -> None:
    await metadata.log.commit(object_of(server, partitions, token, count))


def object_of(server: ServerRef, partitions: list[PartitionKey], token: str, count: int) -> ObjectCommit:
    batches = [BatchCommit(key, i * 100, 100, count, 1_000) for i, key in enumerate(partitions)]
    return ObjectCommit(token=token, server=server, size=100 * len(partitions), batches=batches)


def offer_of(*ranges: OffsetRange) -> TaskOffer:
    return TaskOffer(
        kind=TaskKind.COMPACT,
        stream_number=stream_number(ranges[0].partition),
        ranges=ranges,
        size_bytes=100,
        record_count=1,
        age_ms=0,
    )


async def plan(metadata: Metadata, chance: random.Random, lease: Lease) -> int:
    """Offer the backlog of some partitions as one task, and a merge of some files; returns the number of new tasks."""
    waiting = list(await metadata.tasks.uncompacted(after=PartitionKey(0), limit=1_000))
    chosen = sorted(chance.sample(waiting, min(len(waiting), chance.randint(1, 12))))
    offers = (
        [offer_of(*(OffsetRange(backlog.partition, backlog.compacted, backlog.end) for backlog in chosen))]
        if chosen
        else []
    )
    number = stream_number(chosen[0].partition) if chosen else 1
    files = list(await metadata.objects.data_files(number, limit=100))
    if len(files) > 3 and chance.random() < 0.5:
        inputs = [file.object.key for file in chance.sample(files, 3)]
        offers.append(
            TaskOffer(kind=TaskKind.MERGE, stream_number=number, inputs=inputs, size_bytes=1, record_count=1, age_ms=0)
        )
    return len(await metadata.tasks.offer(offers, lease))


async def work(metadata: Metadata, chance: random.Random, claim: TaskClaim, task: Task) -> bool:
    """Swap the task's rows for new ones, sometimes after quarantining it; returns whether the swap succeeded."""
    ranges = list(task.ranges)
    if task.kind is TaskKind.MERGE:
        files = [
            file for file in await metadata.objects.data_files(task.stream_number) if file.object.key in task.inputs
        ]
        ranges = [
            OffsetRange(segment.partition, segment.base_offset, segment.end_offset)
            for file in files
            for segment in file.segments
        ]
    found = [located_slice.slice for located_slice in await metadata.log.slices(ranges)]
    key = f"data/{task.id}-{claim.epoch}"
    if task.kind is TaskKind.COMPACT and chance.random() < 0.2:
        moved = SwapObject(object=ObjectRef(f"kept/{task.id}-{claim.epoch}", 1, ObjectKind.WAL), slices=found)
        await metadata.tasks.prepare(claim, None, [moved.object.key])
        await metadata.log.swap(Swap(claim=claim, objects=[moved], is_final=False))
    parts = joined(found, chance.randint(1, 9))
    half = chance.randint(0, len(parts))
    swap = Swap(
        claim=claim,
        objects=[
            SwapObject(object=ObjectRef(f"{key}-{i}", 1, ObjectKind.PARQUET), slices=part)
            for i, part in enumerate((parts[:half], parts[half:]))
        ],
    )
    await metadata.tasks.prepare(claim, b"result", [swap_object.object.key for swap_object in swap.objects])
    try:
        position = await metadata.log.swap(swap)
    except Conflict:
        # A start moved between the read and the swap: the rows that were read begin after the claimed range.
        await metadata.tasks.fail(claim, "conflict", retry_after_ms=0, is_quarantined=False)
        return False
    assert await metadata.log.swap(swap) == position
    return True


async def test_concurrent_claims_get_a_task_only_once(postgresql_backend: Any) -> None:
    handles = [await postgresql_backend.open() for _ in range(3)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=200))
    planner = await register(handles[0], "planner")
    lease = await handles[0].leases.acquire("compaction/planner", planner)
    await commit_all(handles[0], planner, [stream.partition(i) for i in range(200)])
    offers = [offer_of(OffsetRange(stream.partition(i), 0, 3)) for i in range(200)]
    made = await handles[0].tasks.offer(offers, lease)
    claimed: list[int] = []

    async def claim(handle: Metadata, name: str) -> None:
        worker = await register(handle, name)
        while tasks := await handle.tasks.claim(worker, limit=3, bytes_max=1 << 40):
            assert all(task.holder == worker and task.epoch == 1 for task in tasks)
            claimed.extend(task.id for task in tasks)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for i in range(9):
            group.create_task(claim(handles[i % 3], f"worker-{i}"))

    assert sorted(claimed) == [task.id for task in made]


async def test_two_concurrent_offers_of_one_planner_create_each_task_once(postgresql_backend: Any) -> None:
    handles = [await postgresql_backend.open() for _ in range(2)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=50))
    planner = await register(handles[0], "planner")
    lease = await handles[0].leases.acquire("compaction/planner", planner)
    await commit_all(handles[0], planner, [stream.partition(i) for i in range(50)])
    offers = [offer_of(OffsetRange(stream.partition(i), 0, 3)) for i in range(50)]
    made = await asyncio.gather(*(handle.tasks.offer(offers, lease) for handle in handles))

    assert sorted(map(len, made)) == [0, 50]


async def test_a_swap_rolls_up_in_bounded_rounds(postgresql_backend: Any) -> None:
    postgresql_backend.settings = PostgresqlSettings(roll_entry_count_max=4, roll_slice_count_max=8)
    metadata = await postgresql_backend.open()
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=2))
    server = await register(metadata, "server-0")
    keys = [stream.partition(0), stream.partition(1)]
    for turn in range(30):
        await commit_all(metadata, server, keys, turn)
    lease = await metadata.leases.acquire("compaction/planner", server)
    await metadata.tasks.offer([offer_of(OffsetRange(keys[0], 0, 30))], lease)
    (task,) = await metadata.tasks.claim(server, limit=1, bytes_max=1)
    segment = Slice(keys[0], 0, 30, 0, 1_500, 1_000)
    file = SwapObject(object=ObjectRef("data/1", 1, ObjectKind.PARQUET), slices=[segment])
    claim = TaskClaim(task_id=task.id, epoch=1, worker=server)
    await metadata.tasks.prepare(claim, None, ["data/1"])
    await metadata.log.swap(Swap(claim=claim, objects=[file]))
    rolled = await postgresql_backend.execute("select rolled from bearlake.log_tail")

    assert (await metadata.log.locate(keys[0], 0, limit=1)).slices[0].slice == segment
    assert 16 <= rolled[0][0] <= 20, "only what the swap needs, in whole rounds"


class Crowd:
    """Run writers, a planner, workers and a disturber on the same partitions until the writers are done."""

    def __init__(self, handles: list[Metadata], partitions: list[PartitionKey], doomed: list[PartitionKey]) -> None:
        self.handles = handles
        self.partitions = partitions
        self.doomed = doomed
        self.done: Counter[str] = Counter()
        self.is_over = asyncio.Event()

    async def write(self, number: int) -> None:
        chance = random.Random(number)
        server = await register(self.handles[number], f"writer-{number}")
        for turn in range(50):
            keys = chance.sample(self.partitions, chance.randint(1, 50)) + (self.doomed if turn < 20 else [])
            await commit(self.handles[number], server, keys, f"{number}/{turn}", chance.randint(1, 5))
        self.done["writer"] += 1

    async def plan(self) -> None:
        chance = random.Random(5)
        server = await register(self.handles[0], "planner")
        lease = await self.handles[0].leases.acquire("compaction/planner", server)
        while not self.is_over.is_set():
            await plan(self.handles[0], chance, lease)

    async def work(self, number: int) -> None:
        chance = random.Random(10 + number)
        metadata = self.handles[number]
        worker = await register(metadata, f"worker-{number}")
        while not self.is_over.is_set():
            for task in await metadata.tasks.claim(worker, limit=2, bytes_max=1 << 40):
                claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=worker)
                self.done[f"{task.kind.name} {await work(metadata, chance, claim, task)}"] += 1

    async def disturb(self) -> None:
        chance = random.Random(99)
        metadata = self.handles[2]
        for turn in range(60):
            key = chance.choice(self.partitions)
            bounds = (await metadata.log.bounds([key]))[key]
            await metadata.log.trim(key, max(bounds.start, bounds.end - chance.randint(0, 100)))
            sample = chance.sample(self.partitions, 30)
            await by_name.retain(metadata, sample, before_ms=None, size_max=chance.choice((500, 3_000)))
            await metadata.log.maintain(entry_count_min=chance.choice((0, 50)))
            await metadata.tasks.backlog()
            unused = await metadata.objects.unused(ObjectKind.WAL, unused_ms=0, limit=5)
            await metadata.objects.deleted([unused_object.object.key for unused_object in unused])
            await metadata.log.forbid([f"orphan/{turn}"])
            assert await metadata.objects.forbid([f"data/orphan-{turn}"]) == {f"data/orphan-{turn}"}
            if turn == 30:
                await by_name.delete(metadata, "doomed")
        while self.done["writer"] < 3:
            await metadata.log.maintain(entry_count_min=0)
        self.is_over.set()

    async def run(self) -> None:
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(self.write(number))
                group.create_task(self.work(number))
            group.create_task(self.plan())
            group.create_task(self.disturb())


async def check(metadata: Metadata, key: PartitionKey) -> None:
    """Check that the partition has no gaps, is compacted up to its compacted offset, and has consistent sizes."""
    slices = (await metadata.log.locate(key, 0, limit=100_000)).slices
    start, end, _ = (await metadata.log.bounds([key]))[key]
    compacted = (await metadata.tasks.compacted([key]))[key]
    usage = (await metadata.log.usage([key]))[key].size_bytes
    waiting = [
        partition.size_bytes
        for partition in await metadata.tasks.uncompacted(after=PartitionKey(key - 1), limit=1)
        if partition.partition == key
    ]
    spans = [(located_slice.slice.base_offset, located_slice.slice.end_offset) for located_slice in slices]
    total = sum(located_slice.slice.length for located_slice in slices)
    behind = [located_slice for located_slice in slices if located_slice.slice.end_offset > compacted]

    assert [span[0] for span in spans[1:]] == [span[1] for span in spans[:-1]], "I4: no gap"
    assert (spans or [(start, start)])[-1][1] == end
    assert not spans or spans[0][0] <= start < spans[0][1]
    # A segment that begins below the start has bytes that are no longer readable.
    assert usage == total or (spans[0][0] < start and usage < total)
    assert all(located_slice.kind is ObjectKind.WAL for located_slice in behind)
    assert all(located_slice.kind is ObjectKind.PARQUET for located_slice in slices if located_slice not in behind)
    assert sum(waiting) == sum(located_slice.slice.length for located_slice in behind)


async def test_concurrent_swaps_commits_trims_and_upkeep_end_in_a_consistent_state(postgresql_backend: Any) -> None:
    postgresql_backend.settings = SMALL
    handles = [await postgresql_backend.open() for _ in range(3)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=70))
    doomed = await handles[0].streams.create(StreamSpec(name="doomed", partition_count=40))
    partitions = [stream.partition(i) for i in range(70)]
    crowd = Crowd(handles, partitions, [doomed.partition(i) for i in range(40)])
    await crowd.run()
    await maintain(handles[0])

    assert crowd.done["COMPACT True"] > 10
    assert crowd.done["MERGE True"] > 0
    for key in partitions:
        await check(handles[0], key)
    assert [tuple(row) for row in await postgresql_backend.execute(MISCOUNTED)] == []
    assert not await handles[0].objects.data_files(doomed.number)
    assert (await postgresql_backend.execute(DEADLOCKS))[0][0] == 0


@pytest.mark.parametrize("is_swapped", [False, True], ids=["prepared", "prepared and swapped"])
async def test_a_task_and_a_sweep_that_want_the_same_key_exclude_each_other(
    postgresql_backend: Any, is_swapped: bool
) -> None:
    """Either the sweep may delete an object or the task has it, never both; nothing deadlocks."""
    handles = [await postgresql_backend.open() for _ in range(3)]
    stream = await handles[0].streams.create(StreamSpec(name="orders", partition_count=1))
    server, key = await register(handles[0], "server-0"), stream.partition(0)
    lease = await handles[0].leases.acquire("compaction/planner", server)
    outcomes: Counter[str] = Counter()
    for turn in range(30):
        await commit(handles[0], server, [key], f"wal/{turn:06}", 1)
        await handles[0].tasks.offer([offer_of(OffsetRange(key, turn - outcomes["swept"], turn + 1))], lease)
        (task,) = await handles[0].tasks.claim(server, limit=1, bytes_max=1)
        claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=server)
        found = [located_slice.slice for located_slice in await handles[0].log.slices(task.ranges)]
        keys = [f"data/{turn}-{number}" for number in range(5)]
        files = [SwapObject(object=ObjectRef(keys[0], 1, ObjectKind.PARQUET), slices=joined(found, 1_000))]

        async def prepare(claim: TaskClaim = claim, files: list[SwapObject] = files, keys: list[str] = keys) -> bool:
            try:
                await handles[0].tasks.prepare(claim, b"result", keys[::-1])
            except Conflict:
                return False
            if is_swapped:
                await handles[0].log.swap(Swap(claim=claim, objects=files))
            return True

        has_them, *swept = await asyncio.gather(
            prepare(), handles[1].objects.forbid(keys[1:]), handles[2].objects.forbid(keys[::-1])
        )
        forbidden = set().union(*swept)
        outcomes["the task" if has_them else "swept"] += 1
        if not has_them:
            assert forbidden
            await handles[0].tasks.cancel(claim)
        elif is_swapped:
            assert keys[0] not in forbidden  # the task released the others when it closed
            outcomes["swept"] = 0
        else:
            assert not forbidden
            await handles[0].tasks.cancel(claim)
            outcomes["swept"] += 1

    assert (await postgresql_backend.execute(DEADLOCKS))[0][0] == 0
