"""Catch-up reads from Parquet: MB/s per CPU-second of the process, from data files to batches ready for the socket.

    python bench/micro/history.py [--mib 256] [--folder /dev/shm] [--fetch-kib 1024] [--partitions 1]

Fills one stream, compacts it with the worker's own task function, and reads everything back by fetches of `--fetch-kib`, with one
consumer per partition that fetches sequentially. CPU is that of the whole process (event loop, decoding threads), without sockets;
bytes are those of the batches served. Half of each value is random, half is text that zstd compresses. Each round is a new
reader with empty caches; the first round also imports parts of pyarrow.
"""

import argparse
import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

from bearlake.compaction import task
from bearlake.compaction.model import WorkItem
from bearlake.compaction.workbench import Workbench
from bearlake.metadata import Metadata, registering
from bearlake.metadata.compaction import OffsetRange, Swap, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.model import BatchCommit, ObjectCommit, ServerRef
from bearlake.metadata.open import open_metadata
from bearlake.objects import ObjectStore
from bearlake.objects.open import open_store
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.serving.memory import MemorySettings, tune_allocator
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import FetchRange
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams

MIB = 1024 * 1024
CASES = [
    (1024, 64, Compression.NONE),
    (100, 640, Compression.NONE),
    (1024, 1, Compression.NONE),
    (1024, 64, Compression.LZ4),
]
"""(bytes of a value, records of a batch, codec)"""
OBJECT_BYTES = 8 * MIB


def rss_mib() -> float:
    """Return the resident memory of this process, in MiB."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize() / MIB


def batch_of(size: int, count: int, codec: Compression) -> bytes:
    """Return a batch of `count` records of `size` bytes."""
    text = (b"the quick brown fox jumps over the lazy dog " * 50)[: size // 2]
    records = [
        Record(key=b"%016d" % at, value=os.urandom(size - size // 2) + text, timestamp=1_700_000_000_000 + at)
        for at in range(count)
    ]
    return encode(records, codec=codec)


async def fill(
    store: ObjectStore,
    metadata: Metadata,
    server: ServerRef,
    view: StreamView,
    total_bytes: int,
    case: tuple[int, int, Compression],
) -> None:
    """Commit WAL objects of 8 MiB, partition by partition."""
    sample = [batch_of(*case) for _ in range(16)]
    for index in range(view.partition_count):
        left = total_bytes // view.partition_count
        number = 0
        while left > 0:
            batches = [sample[at % 16] for at in range(max(1, min(left, OBJECT_BYTES) // len(sample[0])))]
            body = b"".join(batches)
            commits = []
            position = 0
            for batch in batches:
                commits.append(BatchCommit(view.partition(index), position, len(batch), case[1], 1_700_000_000_000))
                position += len(batch)
            key = f"wal/{view.name}-{index}-{number}"
            await store.put(key, [body])
            await metadata.log.commit(ObjectCommit(token=key, server=server, size=len(body), batches=commits))
            left -= len(body)
            number += 1


async def compact(store: ObjectStore, metadata: Metadata, server: ServerRef, view: StreamView) -> tuple[int, float]:
    """Compact the stream; bytes of the data files and CPU seconds."""
    started_s = time.process_time()
    lease = await metadata.leases.acquire("compaction/planner", server)
    bounds = await metadata.log.bounds(list(view.partitions()))
    ranges = [OffsetRange(key, 0, bounds[key].end) for key in view.partitions()]
    offer = TaskOffer(
        kind=TaskKind.COMPACT, stream_number=view.stream.number, ranges=ranges, size_bytes=1, record_count=1, age_ms=0
    )
    (offered,) = await metadata.tasks.offer([offer], lease)
    (claimed,) = await metadata.tasks.claim(server, limit=1, bytes_max=1 << 40)
    assert offered.id == claimed.id
    item = WorkItem(
        kind=TaskKind.COMPACT,
        stream_id=view.stream.id,
        output_prefix=f"table/{view.name}/data/{claimed.id:016x}-{claimed.epoch}-0",
        kept_prefix="kept/",
        slices=await metadata.log.slices(ranges),
        file_bytes_max=128 * MIB,
        row_group_bytes=16 * MIB,
    )
    result = await task.run(item, store, Workbench())
    claim = TaskClaim(task_id=claimed.id, epoch=claimed.epoch, worker=server)
    objects = [written.swap for written in result.files]
    await metadata.tasks.prepare(claim, None, [swap_object.object.key for swap_object in objects])
    await metadata.log.swap(Swap(claim=claim, objects=objects))
    return sum(written.file.size for written in result.files), time.process_time() - started_s


async def read(streams: Streams, view: StreamView, fetch_bytes: int) -> tuple[int, float, float]:
    """Read every partition to its end; (bytes, CPU seconds, seconds)."""

    async def consume(index: int) -> int:
        offset = total = 0
        while True:
            ranges = [FetchRange(view.partition(index), offset, fetch_bytes)]
            (fetched,) = await streams.fetch(ranges, bytes_min=1, bytes_max=fetch_bytes, wait_ms=0)
            assert fetched.error is None, fetched.error
            if not fetched.views:
                assert offset == fetched.end
                return total
            total += fetched.size_bytes
            offset = end_of(fetched.views[-1])

    cpu_s, wall_s = time.process_time(), time.perf_counter()
    total = sum(await asyncio.gather(*(consume(index) for index in range(view.partition_count))))
    return total, time.process_time() - cpu_s, time.perf_counter() - wall_s


def end_of(view: memoryview) -> int:
    """The end offset of a run of batches, found without a Python loop over the batches."""
    from bearlake import kernel

    low, high = 0, len(view)
    while True:  # start of the last batch: skip at most half of the remaining bytes at a time
        _, middle = kernel.find_run(view, low, high, 0, (high - low) // 2, True)
        if middle == high:
            ((_, base, header),) = kernel.batches(view, low, high)
            return base + header.last_offset_delta + 1
        low = middle


async def run(arguments: argparse.Namespace) -> None:
    """Run all cases and print a table."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        store = open_store(f"file://{folder}/objects")
        for case in CASES:
            metadata = await open_metadata("memory:///")
            registration = await registering.register(
                metadata.servers, "bench", zone=None, endpoints={}, version="1", timeout_ms=10**9
            )
            streams = Streams(metadata, store, registration.server)
            await streams.start()
            view = await streams.create(ANONYMOUS, f"s{case[0]}-{case[1]}-{case[2].name}", arguments.partitions, {})
            await fill(store, metadata, registration.server, view, arguments.mib * MIB, case)
            size, compact_s = await compact(store, metadata, registration.server, view)
            print(
                f"values of {case[0]} bytes, {case[1]} in a batch, {case[2].name.lower()}: {arguments.mib} MiB of batches became"
                f" {size / MIB:.0f} MiB in {compact_s:.1f} CPU-s"
            )
            for name in ("first", "second", "third"):
                reader = Streams(metadata, store, registration.server)
                await reader.start()
                before = rss_mib()
                total, cpu_s, wall_s = await read(reader, view, arguments.fetch_kib * 1024)
                print(
                    f"  {name:8} {total / 1e6:8.0f} MB  {total / cpu_s / 1e6:6.0f} MB/s per CPU-s  {total / wall_s / 1e6:6.0f} MB/s"
                    f"  RSS {before:.0f} -> {rss_mib():.0f} MiB",
                    flush=True,
                )
                await reader.close()
            await streams.close()
            await metadata.close()
        await store.close()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--fetch-kib", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=1)
    tune_allocator(MemorySettings())  # as servers do
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
