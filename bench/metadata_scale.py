"""Do look-ups and commits stay flat as a SQLite metadata store grows to 10,000 streams with 100,000 partitions?

    python bench/metadata_scale.py [--folder /dev/shm] [--partitions 1000 10000 100000] [--slices 20] [--cpu]

Each store has ten partitions per stream and `--slices` slices in every partition, all rolled up into the index. Then the store is
reopened, and each step is timed on random streams and partitions: median of many, in milliseconds of wall time (`--cpu`: of CPU
time, for a busy machine). `cold` steps use partitions that are not in memory yet.
"""

import argparse
import asyncio
import random
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, PartitionKey, ServerRef, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.metadata.sqlite.settings import SqliteSettings

PARTITIONS_PER_STREAM = 10
BATCHES = 100


class Store:
    """A store of a given size, and operations on random parts of it."""

    def __init__(self, metadata: Metadata, server: ServerRef, partitions: list[PartitionKey], names: list[str]) -> None:
        self.metadata = metadata
        self.server = server
        self.partitions = partitions
        self.names = names
        self.randomness = random.Random(1)

    async def commit(self, partitions: list[PartitionKey], *, producer: int = -1) -> None:
        """Commit one object with a batch of 10 records for each partition."""
        batches = [
            BatchCommit(key, at * 1000, 1000, 10, 1_700_000_000_000, producer, 0, 0)
            for at, key in enumerate(partitions)
        ]
        token = f"wal/{uuid.uuid4()}"
        await self.metadata.log.commit(
            ObjectCommit(token=token, server=self.server, size=1000 * len(batches), batches=batches)
        )

    async def list_streams(self) -> None:
        """List 100 streams from a random name on."""
        await self.metadata.streams.list(after=self.randomness.choice(self.names), limit=100)

    async def get_stream(self) -> None:
        """Look up a random stream."""
        await self.metadata.streams.get(self.randomness.choice(self.names))

    async def bounds(self) -> None:
        """Read the bounds of random partitions."""
        await self.metadata.log.bounds(self.randomness.sample(self.partitions, BATCHES))

    async def locate(self) -> None:
        """Look up an offset of a random partition."""
        await self.metadata.log.locate(
            self.randomness.choice(self.partitions), self.randomness.randrange(100), limit=10
        )

    async def locate_timestamp(self) -> None:
        """Look up a timestamp in a random partition."""
        await self.metadata.log.locate_timestamp(self.randomness.choice(self.partitions), 1_700_000_000_000)

    async def commit_some(self) -> None:
        """Commit to random partitions without idempotence."""
        await self.commit(self.randomness.sample(self.partitions, BATCHES))

    async def commit_idempotent(self) -> None:
        """Commit to random partitions with a new idempotent producer."""
        await self.commit(self.randomness.sample(self.partitions, BATCHES), producer=self.randomness.getrandbits(40))

    async def follow(self) -> None:
        """Read the newest entry of the log."""
        head = await self.metadata.log.head()
        await self.metadata.log.follow(head - 1, limit=10)

    async def maintain(self) -> None:
        """Run one round of maintenance."""
        await self.metadata.log.maintain(entry_count_min=100)


STEPS: list[tuple[str, Callable[[Store], Awaitable[None]], int]] = [
    ("list 100 streams", Store.list_streams, 200),
    ("get a stream", Store.get_stream, 500),
    ("bounds of 100, cold", Store.bounds, 9),
    ("locate 10 slices", Store.locate, 500),
    ("locate a timestamp", Store.locate_timestamp, 500),
    ("commit 100, cold", Store.commit_some, 9),
    ("commit 100", Store.commit_some, 500),
    ("commit 100 idempotent", Store.commit_idempotent, 200),
    ("follow one entry", Store.follow, 200),
    ("bounds of 100", Store.bounds, 200),
    ("one round of maintain", Store.maintain, 3),
]


async def fill(url: str, partition_count: int, slice_count: int) -> tuple[list[PartitionKey], list[str]]:
    """Fill a new store; return the partitions and the names of the streams."""
    metadata = await open_metadata(url, SqliteSettings(synchronous="OFF"))
    registration = await registering.register(
        metadata.servers, "fill", zone=None, endpoints={}, version="", timeout_ms=10_000
    )
    streams = [
        await metadata.streams.create(
            StreamSpec(name=f"stream-{number:06}", partition_count=PARTITIONS_PER_STREAM, configs={"retention.ms": "1"})
        )
        for number in range(partition_count // PARTITIONS_PER_STREAM)
    ]
    partitions = [stream.partition(index) for stream in streams for index in range(PARTITIONS_PER_STREAM)]
    store = Store(metadata, registration.server, partitions, [stream.name for stream in streams])
    for _ in range(slice_count):
        for at in range(0, partition_count, 1000):
            await store.commit(partitions[at : at + 1000])
    while await metadata.log.maintain(entry_count_min=0):
        pass
    await metadata.close()
    return partitions, store.names


async def measure(folder: str, partition_count: int, slice_count: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the figures of a store of this size by label: medians in ms, unless the label names another unit."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=folder) as path:
        url = f"sqlite://{path}/metadata.db"
        started = clock()
        partitions, names = await fill(url, partition_count, slice_count)
        figures["fill (s)"] = clock() - started
        figures["file (MB)"] = (Path(path) / "metadata.db").stat().st_size / 1e6
        started = clock()
        metadata = await open_metadata(url)
        figures["open"] = (clock() - started) * 1e3
        registration = await registering.register(
            metadata.servers, "bench", zone=None, endpoints={}, version="", timeout_ms=10_000
        )
        store = Store(metadata, registration.server, partitions, names)
        for label, step, count in STEPS:
            walls = []
            for _ in range(count):
                started = clock()
                await step(store)
                walls.append((clock() - started) * 1e3)
            figures[label] = statistics.median(walls)
        figures["RSS, highest yet (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        await metadata.close()
    return figures


async def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--slices", type=int, default=20)
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    results = [await measure(arguments.folder, count, arguments.slices, clock) for count in arguments.partitions]
    print(f"{'ms (median)':<24}" + "".join(f"{count:>12,}" for count in arguments.partitions) + "  partitions")
    for label in results[0]:
        print(f"{label:<24}" + "".join(f"{figures[label]:>12.3f}" for figures in results))


if __name__ == "__main__":
    asyncio.run(main())
