"""Do look-ups and commits stay flat as a SQLite metadata store grows to 10,000 streams with 100,000 partitions?

    python bench/metadata_scale.py [--folder /dev/shm] [--partitions 1000 10000 100000] [--slices 5] [--limit-s 300] [--cpu]

Each store has ten partitions per stream and `--slices` slices in every partition, all rolled up into the index: to fill a store takes
25 to 100 us of CPU per slice. Then the store is reopened, and each step is timed on random streams and partitions: median of many, in
milliseconds of wall time (`--cpu`: of CPU time, for a busy machine). `cold` steps use partitions that are not in memory yet.

Progress goes to standard error. A store that takes longer than `--limit-s` is given up, and larger ones are not tried: the table has
the finished stores, and the exit code is 1. Exit code 2: no store was finished.
"""

import argparse
import asyncio
import random
import resource
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.errors import BenchError

from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, PartitionKey, ServerRef, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.metadata.sqlite.settings import SqliteSettings
from bench import report

PARTITION_COUNTS = (1_000, 10_000, 100_000)
PARTITIONS_PER_STREAM = 10
SLICE_COUNT = 5
LIMIT_S = 300.0
PROGRESS_S = 5.0
COMMIT_PARTITIONS = 1000
"""Partitions in one commit of `fill`."""
SLICES_PER_ROUND = 2000
"""Slices that a round of maintenance rolls up, about: only for the progress."""
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


class Progress:
    """Writes to standard error how far a store is, and gives it up after its time."""

    def __init__(self, partition_count: int, limit_s: float) -> None:
        self._name = f"{partition_count:,} partitions"
        self._limit_s = limit_s
        self._start_s = time.monotonic()
        self._said_s = -PROGRESS_S

    def at(self, phase: str, done: int, total: int) -> None:
        """Report `done` of `total` steps of `phase`. Raises BenchError when the store's time is over."""
        seconds = time.monotonic() - self._start_s
        if seconds > self._limit_s:
            raise BenchError(f"{self._name}: given up after {seconds:.0f} s, at {phase} {done:,} of {total:,}")
        if seconds - self._said_s >= PROGRESS_S or done == total:
            self._said_s = seconds
            print(f"{self._name}, {seconds:4.0f} s: {phase} {done:,} of {total:,}", file=sys.stderr, flush=True)


async def fill(
    url: str, partition_count: int, slice_count: int, progress: Progress
) -> tuple[list[PartitionKey], list[str]]:
    """Fill a new store; return the partitions and the names of the streams."""
    metadata = await open_metadata(url, SqliteSettings(synchronous="OFF"))
    try:
        registration = await registering.register(
            metadata.servers, "fill", zone=None, endpoints={}, version="", timeout_ms=10_000
        )
        stream_count = partition_count // PARTITIONS_PER_STREAM
        partitions: list[PartitionKey] = []
        names = []
        for number in range(stream_count):
            progress.at("streams", number, stream_count)
            spec = StreamSpec(
                name=f"stream-{number:06}", partition_count=PARTITIONS_PER_STREAM, configs={"retention.ms": "1"}
            )
            stream = await metadata.streams.create(spec)
            names.append(stream.name)
            partitions += [stream.partition(index) for index in range(PARTITIONS_PER_STREAM)]
        store = Store(metadata, registration.server, partitions, names)
        for number in range(slice_count):
            for at in range(0, partition_count, COMMIT_PARTITIONS):
                progress.at("slices", number * partition_count + at, slice_count * partition_count)
                await store.commit(partitions[at : at + COMMIT_PARTITIONS])
        rounds = 0
        while await metadata.log.maintain(entry_count_min=0):
            rounds += 1
            progress.at("roll-up rounds", rounds, slice_count * partition_count // SLICES_PER_ROUND)
    finally:
        await metadata.close()
    return partitions, names


async def measure(
    folder: str, partition_count: int, slice_count: int, clock: Callable[[], float], limit_s: float
) -> dict[str, float]:
    """Return the figures of a store of this size by label: medians in ms, unless the label names another unit.

    Raises BenchError when that takes longer than `limit_s` seconds.
    """
    figures: dict[str, float] = {}
    progress = Progress(partition_count, limit_s)
    with tempfile.TemporaryDirectory(dir=folder) as path:
        url = f"sqlite://{path}/metadata.db"
        started = clock()
        partitions, names = await fill(url, partition_count, slice_count, progress)
        figures["fill (s)"] = clock() - started
        figures["file (MB)"] = (Path(path) / "metadata.db").stat().st_size / 1e6
        started = clock()
        metadata = await open_metadata(url)
        figures["open"] = (clock() - started) * 1e3
        try:
            registration = await registering.register(
                metadata.servers, "bench", zone=None, endpoints={}, version="", timeout_ms=10_000
            )
            store = Store(metadata, registration.server, partitions, names)
            for label, step, count in STEPS:
                times = []
                for number in range(count):
                    progress.at(label, number, count)
                    started = clock()
                    await step(store)
                    times.append((clock() - started) * 1e3)
                figures[label] = statistics.median(times)
        finally:
            await metadata.close()
        figures["RSS, highest yet (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return figures


async def measure_all(
    folder: str, partition_counts: Sequence[int], slice_count: int, clock: Callable[[], float], limit_s: float
) -> tuple[dict[int, dict[str, float]], str | None]:
    """Measure stores of growing size; return their figures, and why the next was given up, if so."""
    found: dict[int, dict[str, float]] = {}
    for count in sorted(partition_counts):
        try:
            found[count] = await measure(folder, count, slice_count, clock, limit_s)
        except BenchError as error:
            return found, str(error)
    return found, None


def table(found: Mapping[int, Mapping[str, float]]) -> str:
    """The figures as a table: a row per step, a column per store."""
    labels = list(next(iter(found.values()), {}))
    heads = ["ms (median)", *(f"{count:,} partitions" for count in found)]
    return report.table(heads, [[label, *(report.short(found[count][label]) for count in found)] for label in labels])


def main() -> None:
    """Run the command line described at the top."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITION_COUNTS)
    parser.add_argument("--slices", type=int, default=SLICE_COUNT, help="in every partition")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="longest time (s) of one store")
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of wall time")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    found, failure = asyncio.run(
        measure_all(options.folder, options.partitions, options.slices, clock, options.limit_s)
    )
    if found:
        print(table(found))
    if failure:
        print(f"bench: {failure}", file=sys.stderr)
        sys.exit(1 if found else 2)


if __name__ == "__main__":
    main()
