"""Commits per second and latency of the PostgreSQL metadata store; each object has one batch for each of a number of partitions.

    .venv/bin/python bench/micro/metadata_postgresql.py [--seconds 3] [--partitions 100,1000] [--connections 1,4] [--streams 1]

Starts its own PostgreSQL (with fsync on; its folder is on the disk of TMPDIR), or uses `--url`, whose database should be empty.
`--crowd 10000` instead compares an almost empty store with a store of that many streams of ten partitions each.
Committers share all partitions, the hardest case for row locks. `idempotent`: each batch has a producer, as most clients do by default.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, PartitionKey, ServerRef, StreamSpec
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql

BATCH_BYTES = 65536


def commit_of(
    token: str, server: ServerRef, partitions: list[PartitionKey], producer_id: int, turn: int
) -> ObjectCommit:
    """Return a commit with one batch of 100 records per partition; `producer_id` < 0: without idempotence."""
    batches = [
        BatchCommit(key, i * BATCH_BYTES, BATCH_BYTES, 100, 1_700_000_000_000, producer_id, 0, turn * 100)
        if producer_id >= 0
        else BatchCommit(key, i * BATCH_BYTES, BATCH_BYTES, 100, 1_700_000_000_000)
        for i, key in enumerate(partitions)
    ]
    return ObjectCommit(token=token, server=server, size=len(batches) * BATCH_BYTES, batches=batches)


async def committer(
    store: Metadata,
    server: ServerRef,
    partitions: list[PartitionKey],
    producer_id: int,
    seconds: float,
    latencies: list[float],
) -> None:
    """Commit one object after another for `seconds`; append the latencies, in seconds."""
    end = time.perf_counter() + seconds
    turn = 0
    while (start := time.perf_counter()) < end:
        token = f"wal/{producer_id}/{id(latencies)}-{id(store)}-{len(latencies)}-{turn}-{start}"
        await store.log.commit(commit_of(token, server, partitions, producer_id, turn))
        latencies.append(time.perf_counter() - start)
        turn += 1


async def measure(
    url: str, *, partition_count: int, connections: int, streams: int, idempotent: bool, seconds: float
) -> str:
    """Measure concurrent commits on one store; return a line."""
    settings = PostgresqlSettings(connections_max=connections)
    store = await open_postgresql(url, settings)
    prefix = f"bench-{time.time_ns()}"
    made = [
        await store.streams.create(StreamSpec(name=f"{prefix}-{i}", partition_count=partition_count // streams))
        for i in range(streams)
    ]
    partitions = [stream.partition(i) for stream in made for i in range(stream.partition_count)]
    registration = await registering.register(
        store.servers, "bench", zone=None, endpoints={}, version="0", timeout_ms=600_000
    )
    first = (await store.producers.allocate(connections)).start
    latencies: list[float] = []
    for is_warm in (False, True):
        latencies.clear()
        started, used = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for i in range(connections):
                producer_id = first + i if idempotent else -1
                if idempotent and is_warm:
                    producer_id += 1_000_000
                group.create_task(
                    committer(
                        store, registration.server, partitions, producer_id, seconds if is_warm else 0.3, latencies
                    )
                )
        elapsed, used = time.perf_counter() - started, time.process_time() - used
    await store.close()
    count = len(latencies)
    latencies.sort()
    p50, p99 = latencies[count // 2] * 1e3, latencies[min(count - 1, int(count * 0.99))] * 1e3
    return (
        f"{partition_count:6d} {streams:7d} {connections:11d} {'yes' if idempotent else 'no':>10s}"
        f" {count / elapsed:10.0f} {p50:7.2f} {p99:7.2f} {used / count * 1e6:10.0f}"
    )


async def crowd(url: str, stream_count: int) -> None:
    """Times of single operations before and after `stream_count` streams of ten partitions were created and written."""
    store = await open_postgresql(url)
    registration = await registering.register(
        store.servers, "bench", zone=None, endpoints={}, version="0", timeout_ms=600_000
    )
    partitions: list[PartitionKey] = []
    print(
        "partitions  list ms  bounds ms  locate ms (newest, oldest, timestamp)  commit of 100 ms  roll-up ms per entry"
    )
    for count in (100, stream_count):
        while len(partitions) < count * 10:
            stream = await store.streams.create(StreamSpec(name=f"crowd-{len(partitions):09}", partition_count=10))
            partitions += [stream.partition(i) for i in range(10)]
        for turn in range(max(20, len(partitions) // 1000)):
            chosen = [partitions[(turn * 1000 + i) % len(partitions)] for i in range(1000)]
            await store.log.commit(commit_of(f"fill-{count}-{turn}", registration.server, chosen, -1, 0))
        rolled, rolling = 0, time.perf_counter()
        while step := await store.log.maintain(entry_count_min=100):
            rolled += step
        rolling = (time.perf_counter() - rolling) / max(1, rolled)
        figures = []
        for name in ("list", "bounds", "newest", "oldest", "timestamp", "commit"):
            times = []
            for turn in range(50):
                key = partitions[turn * 7919 % len(partitions)]
                sampled = [partitions[(turn * 7919 + i * 31) % len(partitions)] for i in range(100)]
                calls = {
                    "list": lambda key=key: store.streams.list(after=f"crowd-{key % 1000:09}", limit=100),
                    "bounds": lambda sampled=sampled: store.log.bounds(sampled),
                    "newest": lambda key=key: store.log.locate(key, 1 << 40, limit=10),
                    "oldest": lambda key=key: store.log.locate(key, 0, limit=10),
                    "timestamp": lambda key=key: store.log.locate_timestamp(key, 5),
                    "commit": lambda sampled=sampled, turn=turn, count=count: store.log.commit(
                        commit_of(f"one-{count}-{turn}", registration.server, sampled, 5, turn)
                    ),
                }
                start = time.perf_counter()
                await calls[name]()
                times.append(time.perf_counter() - start)
            figures.append(sorted(times)[len(times) // 2] * 1e3)
        print(
            f"{len(partitions):10d}  " + "  ".join(f"{figure:7.2f}" for figure in figures) + f"  {rolling * 1e3:7.2f}",
            flush=True,
        )
    await store.close()


@contextlib.contextmanager
def database(url: str | None) -> Iterator[str]:
    """Yield `url`, or the URL of a PostgreSQL server that runs for this block."""
    if url is not None:
        yield url
        return
    from fixtures.postgresql import PostgresqlServer

    server = PostgresqlServer(fsync=True)
    try:
        server.start()
        yield server.url()
    finally:
        server.remove()


def numbers(text: str) -> list[int]:
    """Parse integers separated by commas."""
    return [int(word) for word in text.split(",")]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--partitions", type=numbers, default=[100, 1000])
    parser.add_argument("--connections", type=numbers, default=[1, 4])
    parser.add_argument("--streams", type=numbers, default=[1, 100])
    parser.add_argument("--crowd", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.crowd:
        with database(arguments.url) as url:
            asyncio.run(crowd(url, arguments.crowd))
        return
    print("partitions streams connections idempotent  commits/s  p50 ms  p99 ms  client us")
    with database(arguments.url) as url:
        for partition_count in arguments.partitions:
            for streams in arguments.streams:
                for connections in arguments.connections:
                    for idempotent in (False, True):
                        line = asyncio.run(
                            measure(
                                url,
                                partition_count=partition_count,
                                connections=connections,
                                streams=streams,
                                idempotent=idempotent,
                                seconds=arguments.seconds,
                            )
                        )
                        print(line, flush=True)


if __name__ == "__main__":
    main()
