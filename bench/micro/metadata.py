"""Cost of a commit in the SQLite metadata store: CPU and wall time at 1, 100 and 1,000 partitions per object.

    python bench/micro/metadata.py [--folder /dev/shm] [--synchronous FULL] [--seconds 2]

`plain` batches have no producer, `idempotent` ones do (one producer per partition). `thread` is the store as servers use it, with its
thread hop; `step` is the commit alone, called on the store's thread.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bearlake.metadata import registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, ServerRef, Stream, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.metadata.sqlite.settings import SqliteSettings


def objects(stream: Stream, server: ServerRef, partition_count: int, *, is_idempotent: bool) -> Iterator[ObjectCommit]:
    """Yield commits of objects with one batch per partition, without end."""
    number = 0
    while True:
        batches = [
            BatchCommit(stream.partition(index), index * 8192, 8192, 10, 1_700_000_000_000 + number)
            if not is_idempotent
            else BatchCommit(
                stream.partition(index), index * 8192, 8192, 10, 1_700_000_000_000 + number, index, 0, 10 * number
            )
            for index in range(partition_count)
        ]
        yield ObjectCommit(token=f"wal/{number:032}", server=server, size=8192 * partition_count, batches=batches)
        number += 1


async def measure(
    folder: str, settings: SqliteSettings, partition_count: int, seconds: float, *, is_idempotent: bool, is_step: bool
) -> str:
    """Commit for `seconds`; return a line with the rate and the latencies."""
    with tempfile.TemporaryDirectory(dir=folder) as path:
        metadata = await open_metadata(f"sqlite://{Path(path)}/metadata.db", settings)
        stream = await metadata.streams.create(StreamSpec(name="bench", partition_count=partition_count))
        registration = await registering.register(
            metadata.servers, "bench", zone=None, endpoints={}, version="", timeout_ms=10_000
        )
        source = objects(stream, registration.server, partition_count, is_idempotent=is_idempotent)
        commit_here = metadata.log._commits.commit  # type: ignore[attr-defined]
        walls, cpus = [], []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            commit = next(source)
            wall, cpu = time.perf_counter(), time.process_time()
            if is_step:
                commit_here(commit)
            else:
                await metadata.log.commit(commit)
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
            if len(walls) % 1_000 == 0:
                await metadata.log.maintain(entry_count_min=100)
        await metadata.close()
    walls.sort()
    cpus.sort()
    kind = "idempotent" if is_idempotent else "plain"
    how = "step" if is_step else "thread"
    middle, high = len(walls) // 2, len(walls) * 99 // 100
    return (
        f"{partition_count:10,} {kind:>11} {how:>7} {len(walls):8,} {sum(cpus) / len(cpus) * 1e3:9.3f} {cpus[middle] * 1e3:9.3f}"
        f" {walls[middle] * 1e3:9.3f} {walls[high] * 1e3:9.3f}"
    )


async def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--synchronous", default="FULL", choices=["FULL", "NORMAL", "OFF"])
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    settings = SqliteSettings(synchronous=arguments.synchronous)
    print(
        f"{'partitions':>10} {'batches':>11} {'how':>7} {'commits':>8} {'CPU mean':>9} {'CPU p50':>9} {'p50':>9} {'p99':>9}   (ms)"
    )
    for partition_count in (1, 100, 1_000):
        for is_idempotent in (False, True):
            for is_step in (True, False):
                print(
                    await measure(
                        arguments.folder,
                        settings,
                        partition_count,
                        arguments.seconds,
                        is_idempotent=is_idempotent,
                        is_step=is_step,
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    asyncio.run(main())
