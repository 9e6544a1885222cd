"""Cost of compaction in the SQLite metadata store: swaps, the planner's read of many idle partitions, claims from a long queue.

    .venv/bin/python bench/micro/metadata_compaction.py [--partitions 1000] [--slices 40] [--idle 100000] [--tasks 10000] [--folder /tmp]

`step` is the longest single step on the store's thread, for which a commit may have to wait. The other figure is the whole call.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bearlake.clock import SystemClock
from bearlake.metadata import registering
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.model import (
    BatchCommit,
    ObjectCommit,
    ObjectKind,
    ObjectRef,
    PartitionKey,
    Slice,
    StreamSpec,
    partition_index,
    stream_number,
)
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import SqliteMetadata, open_sqlite

BATCH_BYTES = 100
PARTITIONS_PER_STREAM = 1_000
PLANNER = "compaction/planner"


class Bench:
    """A store with a server that is planner and worker; records the duration of each step."""

    def __init__(self, store: SqliteMetadata) -> None:
        self.store = store
        self.file_count = 0
        self.steps_ms: list[float] = []
        database: Any = store._database
        run = database._guarded

        def timed(step: Callable[..., Any], *arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return run(step, *arguments)
            finally:
                self.steps_ms.append((time.perf_counter() - started) * 1e3)

        database._guarded = timed

    async def start(self) -> None:
        """Register the server and take the planner's lease."""
        registration = await registering.register(
            self.store.servers, "a", zone=None, endpoints={}, version="", timeout_ms=3_600_000
        )
        self.server = registration.server
        self.lease = await self.store.leases.acquire(PLANNER, self.server)

    async def fill(self, name: str, partition_count: int, slice_count: int) -> list[PartitionKey]:
        """Create a stream whose partitions have this many slices of ten records each, all rolled up."""
        stream = await self.store.streams.create(StreamSpec(name=name, partition_count=partition_count))
        keys = [stream.partition(index) for index in range(partition_count)]
        for number in range(slice_count):
            batches = [BatchCommit(key, at * BATCH_BYTES, BATCH_BYTES, 10, 1) for at, key in enumerate(keys)]
            size = BATCH_BYTES * partition_count
            token = f"wal/{name}/{number}"
            await self.store.log.commit(ObjectCommit(token=token, server=self.server, size=size, batches=batches))
        while await self.store.log.maintain(entry_count_min=0):
            pass
        return keys

    async def claimed(self, keys: list[PartitionKey], end: int) -> TaskClaim:
        """Offer a task for `[0, end)` of the partitions, and claim it."""
        ranges = [OffsetRange(key, 0, end) for key in keys]
        offer = TaskOffer(
            kind=TaskKind.COMPACT, stream_number=keys[0] >> 20, ranges=ranges, size_bytes=1, record_count=1, age_ms=0
        )
        await self.store.tasks.offer([offer], self.lease)
        (task,) = await self.store.tasks.claim(self.server, limit=1, bytes_max=1 << 40)
        return TaskClaim(task_id=task.id, epoch=task.epoch, worker=self.server)

    def swap(self, claim: TaskClaim, keys: list[PartitionKey], end: int) -> Swap:
        """Return a swap of the partitions' slices to segments of one new file."""
        self.file_count += 1
        segments = [Slice(key, 0, end, 0, end // 10 * BATCH_BYTES, 1) for key in keys]
        file = ObjectRef(f"data/{self.file_count}", 1, ObjectKind.PARQUET)
        return Swap(claim=claim, objects=[SwapObject(object=file, slices=segments)])

    async def measure(self, label: str, call: Callable[[], Awaitable[Any]]) -> None:
        """Print the time of `call`, and the longest step of the store in it."""
        self.steps_ms.clear()
        started = time.perf_counter()
        found = await call()
        whole_ms = (time.perf_counter() - started) * 1e3
        count = f", {len(found)} found" if isinstance(found, list) else ""
        print(f"{label:<44}{whole_ms:>10.1f} ms   step {max(self.steps_ms):>8.1f} ms{count}", flush=True)


async def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--slices", type=int, default=40)
    parser.add_argument("--idle", type=int, default=100_000)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--folder", default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        store = await open_sqlite(Path(folder) / "metadata.db", SqliteSettings(), clock=SystemClock())
        bench = Bench(store)
        await bench.start()
        await swaps(bench, arguments.partitions, arguments.slices)
        await looks(bench, arguments.idle)
        await queue(bench, arguments.tasks)
        await store.close()


async def swaps(bench: Bench, partition_count: int, slice_count: int) -> None:
    """Measure reading the slices of all partitions, and swapping them."""
    keys = await bench.fill("swapped", partition_count, slice_count)
    end = 10 * slice_count
    claim = await bench.claimed(keys, end)
    ranges = [OffsetRange(key, 0, end) for key in keys]
    await bench.measure(f"slices of {partition_count} x {slice_count}", lambda: bench.store.log.slices(ranges))
    swap = bench.swap(claim, keys, end)
    await bench.store.tasks.prepare(claim, None, [swap_object.object.key for swap_object in swap.objects])
    await bench.measure(f"swap of {partition_count} x {slice_count}", lambda: bench.store.log.swap(swap))
    await bench.measure("the same swap again", lambda: bench.store.log.swap(swap))


async def looks(bench: Bench, idle_count: int) -> None:
    """Measure the planner's reads with many idle streams."""
    tasks = bench.store.tasks
    streams = [
        await bench.fill(f"idle-{number}", PARTITIONS_PER_STREAM, 1)
        for number in range(idle_count // PARTITIONS_PER_STREAM)
    ]
    await bench.measure(f"backlog, all {idle_count} wait", tasks.backlog)
    await bench.measure("uncompacted, 1,000 of them", lambda: tasks.uncompacted(after=PartitionKey(0), limit=1_000))
    for keys in streams:
        await bench.store.log.swap(bench.swap(await bench.claimed(keys, 10), keys, 10))
    await bench.measure(f"backlog, all {idle_count} idle", tasks.backlog)
    await bench.measure("uncompacted, all idle", lambda: tasks.uncompacted(after=PartitionKey(0), limit=1_000))
    batches = [BatchCommit(key, at * BATCH_BYTES, BATCH_BYTES, 10, 1) for at, key in enumerate(streams[0][:10])]
    await bench.store.log.commit(ObjectCommit(token="wal/one", server=bench.server, size=1_000, batches=batches))
    await bench.measure("backlog, 10 wait", tasks.backlog)
    await bench.measure("retain 1,000, nothing to trim", lambda: retained(bench, streams[0]))


async def retained(bench: Bench, keys: list[PartitionKey]) -> None:
    """Run a retention that finds nothing to trim."""
    (stream,) = await bench.store.streams.by_numbers([stream_number(keys[0])])
    await bench.store.log.retain(stream, [partition_index(key) for key in keys], before_ms=1 << 41, size_max=1 << 40)


async def queue(bench: Bench, task_count: int) -> None:
    """Measure offering, listing and claiming many tasks."""
    keys = await bench.fill("queued", task_count, 1)
    offers = [
        TaskOffer(
            kind=TaskKind.COMPACT,
            stream_number=key >> 20,
            ranges=[OffsetRange(key, 0, 10)],
            size_bytes=1,
            record_count=1,
            age_ms=0,
        )
        for key in keys
    ]
    tasks = bench.store.tasks
    await bench.measure("offer 100 tasks", lambda: tasks.offer(offers[:100], bench.lease))
    await tasks.offer(offers[100:], bench.lease)
    await bench.measure(f"claim 8 of {task_count}", lambda: tasks.claim(bench.server, limit=8, bytes_max=1 << 40))
    await tasks.claim(bench.server, limit=task_count // 2, bytes_max=1 << 40)
    await bench.measure(
        f"claim 8 behind {task_count // 2} that are held", lambda: tasks.claim(bench.server, limit=8, bytes_max=1 << 40)
    )


if __name__ == "__main__":
    asyncio.run(main())
