"""Cost of compaction in the PostgreSQL metadata store: swaps, the planner's read of many idle partitions, claims from a long queue.

    .venv/bin/python bench/micro/metadata_postgresql_compaction.py [--partitions 1000] [--slices 40] [--idle 100000] [--tasks 5000]

Starts its own PostgreSQL (with fsync on; its folder is on the disk of TMPDIR), or uses `--url`, whose database should be empty.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from metadata_postgresql import commit_of, database

from bearlake.metadata import Metadata, registering
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.model import (
    Lease,
    ObjectKind,
    ObjectRef,
    PartitionKey,
    ServerRef,
    Slice,
    StreamSpec,
    stream_number,
)
from bearlake.metadata.postgresql.store import open_postgresql


class Bench:
    """A store with a planner's lease and one worker."""

    def __init__(self, store: Metadata, server: ServerRef, lease: Lease) -> None:
        self.store = store
        self.server = server
        self.lease = lease
        self.object_count = 0

    @classmethod
    async def on(cls, store: Metadata, name: str = "bench") -> "Bench":
        """Register a server on this store and take a lease to plan with."""
        registration = await registering.register(
            store.servers, name, zone=None, endpoints={}, version="0", timeout_ms=3_600_000
        )
        lease = await store.leases.acquire(f"compaction/{name}", registration.server)
        return cls(store, registration.server, lease)

    async def partitions(self, name: str, count: int) -> list[PartitionKey]:
        """Create a stream; return its partitions."""
        stream = await self.store.streams.create(StreamSpec(name=name, partition_count=count))
        return [stream.partition(i) for i in range(count)]

    async def commit(self, partitions: list[PartitionKey]) -> float:
        """Commit one object with a batch per partition; return the time, in seconds."""
        self.object_count += 1
        started = time.perf_counter()
        await self.store.log.commit(
            commit_of(f"wal/{self.server.epoch}/{self.object_count:09}", self.server, partitions, -1, 0)
        )
        return time.perf_counter() - started

    async def claim_all(self, partitions: list[PartitionKey]) -> TaskClaim:
        """Offer one task for everything that waits in the partitions, and claim it."""
        waiting = await self.store.tasks.uncompacted(after=PartitionKey(partitions[0] - 1), limit=len(partitions))
        offer = TaskOffer(
            kind=TaskKind.COMPACT,
            stream_number=partitions[0] >> 20,
            ranges=[OffsetRange(backlog.partition, backlog.compacted, backlog.end) for backlog in waiting],
            size_bytes=1,
            record_count=1,
            age_ms=0,
        )
        await self.store.tasks.offer([offer], self.lease)
        (task,) = await self.store.tasks.claim(self.server, limit=1, bytes_max=1 << 40)
        return TaskClaim(task_id=task.id, epoch=task.epoch, worker=self.server)

    async def prepared(self, partitions: list[PartitionKey]) -> tuple[Swap, int]:
        """A swap of the whole backlog into one file, one segment per partition, and the number of rows that it replaces."""
        claim = await self.claim_all(partitions)
        (task,) = await self.store.tasks.list()
        old = await self.store.log.slices(task.ranges)
        sizes: dict[int, int] = {}
        for located_slice in old:
            sizes[located_slice.slice.partition] = (
                sizes.get(located_slice.slice.partition, 0) + located_slice.slice.length
            )
        segments = [
            Slice(range_.partition, range_.start, range_.end - range_.start, i, sizes[range_.partition], 1)
            for i, range_ in enumerate(task.ranges)
        ]
        ref = ObjectRef(f"data/{task.id:09}.parquet", 1 << 27, ObjectKind.PARQUET)
        return Swap(claim=claim, objects=[SwapObject(object=ref, slices=segments)]), len(old)

    async def swap(self, partitions: list[PartitionKey]) -> tuple[float, int]:
        """Compact the whole backlog; returns the seconds of the swap and the number of replaced rows."""
        swap, row_count = await self.prepared(partitions)
        started = time.perf_counter()
        await self.store.log.swap(swap)
        return time.perf_counter() - started, row_count


async def roll_up(store: Metadata) -> None:
    """Run maintenance until all entries are rolled up."""
    while await store.log.maintain(entry_count_min=100):
        pass


async def swaps(bench: Bench, partition_count: int, slice_count: int) -> None:
    """Measure swaps of rolled-up slices and of log entries."""
    partitions = await bench.partitions("swapped", partition_count)
    for is_rolled in (True, False):
        for _ in range(3):
            for _ in range(slice_count):
                await bench.commit(partitions)
            if is_rolled:
                await roll_up(bench.store)
            seconds, row_count = await bench.swap(partitions)
            state = "rolled up before" if is_rolled else "rolls up itself"
            print(
                f"swap of {partition_count} partitions, {row_count} rows, {state}: {seconds * 1e3:.0f} ms", flush=True
            )


async def beside(bench: Bench, partition_count: int, slice_count: int, turns: int) -> None:
    """Commits of 100 partitions by 4 committers: one second without a swap, then during a swap of all 1,000 partitions."""
    partitions = await bench.partitions("beside", partition_count)
    calm: list[float] = []
    swapping: list[float] = []
    calm_s = swapping_s = 0.0
    for _ in range(turns):
        for _ in range(slice_count):
            await bench.commit(partitions)
        await roll_up(bench.store)
        swap, _ = await bench.prepared(partitions)
        is_over = asyncio.Event()
        phase = [calm]

        async def write(phase: list[list[float]] = phase, is_over: asyncio.Event = is_over) -> None:
            while not is_over.is_set():
                seconds = await bench.commit(partitions[::10][:100])
                phase[0].append(seconds)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(write())
            await asyncio.sleep(1.0)
            calm_s += 1.0
            phase[0] = swapping
            started = time.perf_counter()
            await bench.store.log.swap(swap)
            swapping_s += time.perf_counter() - started
            is_over.set()
        await roll_up(bench.store)
        await bench.swap(partitions)
    for what, samples, seconds in (("without swaps", calm, calm_s), ("during swaps", swapping, swapping_s)):
        samples.sort()
        print(
            f"commits of 100 partitions, 4 committers, {what} ({seconds / turns * 1e3:.0f} ms each): {len(samples) / seconds:.0f}/s,"
            f" p50 {samples[len(samples) // 2] * 1e3:.1f} ms, p99 {samples[int(len(samples) * 0.99)] * 1e3:.1f} ms,"
            f" max {samples[-1] * 1e3:.1f} ms",
            flush=True,
        )


async def timed(what: str, call: Callable[[], Awaitable[object]], turns: int = 10) -> None:
    """Print the median and the longest of `turns` runs of `call`."""
    times = []
    for _ in range(turns):
        started = time.perf_counter()
        await call()
        times.append(time.perf_counter() - started)
    print(f"{what}: median {statistics.median(times) * 1e3:.1f} ms, max {max(times) * 1e3:.1f} ms", flush=True)


async def backlogs(bench: Bench, idle_count: int) -> None:
    """Measure the planner's reads with many idle partitions."""
    store = bench.store
    streams = [await bench.partitions(f"idle-{i:06}", 1000) for i in range(idle_count // 1000)]
    for partitions in streams:
        await bench.commit(partitions)
        await roll_up(store)
        await bench.swap(partitions)
    nothing = PartitionKey(0)
    await timed(f"uncompacted() of {idle_count} idle", lambda: store.tasks.uncompacted(after=nothing, limit=1000))
    await timed(f"backlog() of {idle_count} idle", store.tasks.backlog)
    for partitions in streams:
        await bench.commit(partitions[:10])
    await timed("uncompacted(), 1 % in the log", lambda: store.tasks.uncompacted(after=nothing, limit=1000))
    await timed("backlog(), 1 % in the log", store.tasks.backlog)
    await roll_up(store)
    await timed("uncompacted(), 1 % in the index", lambda: store.tasks.uncompacted(after=nothing, limit=1000))
    await timed("backlog(), 1 % in the index", store.tasks.backlog)
    known = await store.streams.by_numbers([stream_number(partitions[0]) for partitions in streams[:10]])

    async def retain() -> None:
        for stream in known:
            await store.log.retain(stream, range(1000), before_ms=1 << 41, size_max=None)

    await timed("retain() of 10,000, nothing to trim", retain, 3)


async def claims(bench: Bench, task_count: int) -> None:
    """Measure offering, listing and claiming many tasks."""
    store = bench.store
    partitions = await bench.partitions("queue", task_count)
    await bench.commit(partitions)
    offers = [
        TaskOffer(
            kind=TaskKind.COMPACT,
            stream_number=key >> 20,
            ranges=[OffsetRange(key, 0, 100)],
            size_bytes=1,
            record_count=100,
            age_ms=0,
        )
        for key in partitions
    ]
    started = time.perf_counter()
    await store.tasks.offer(offers, bench.lease)
    print(f"offer of {task_count} tasks at once: {(time.perf_counter() - started) * 1e3:.0f} ms", flush=True)
    await timed("claim of 4", lambda: store.tasks.claim(bench.server, limit=4, bytes_max=1 << 40), 50)
    await timed("claim of 4, 200 held", lambda: store.tasks.claim(bench.server, limit=4, bytes_max=1 << 40), 50)
    await timed("list of 1000", store.tasks.list)


async def measure(url: str, arguments: argparse.Namespace) -> None:
    """Run all measurements on one store."""
    store = await open_postgresql(url)
    bench = await Bench.on(store)
    await swaps(bench, arguments.partitions, arguments.slices)
    await beside(bench, arguments.partitions, arguments.slices, arguments.turns)
    await backlogs(bench, arguments.idle)
    await claims(bench, arguments.tasks)
    await store.close()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a PostgreSQL to use instead of one of its own")
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--slices", type=int, default=40)
    parser.add_argument("--idle", type=int, default=100_000)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    with database(arguments.url) as url:
        asyncio.run(measure(url, arguments))


if __name__ == "__main__":
    main()
