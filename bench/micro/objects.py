"""Cost of the object stores: puts and reads of the local folder on tmpfs and on disk, with and without fsync.

    python bench/micro/objects.py [--disk FOLDER] [--tmpfs FOLDER] [--s3 s3://bucket/prefix] [--rounds 3]

Each line is the median of sequential calls. "busy" repeats the put while the event loop is busy in steps of 200 µs, as in a loaded server:
the putting thread must then reacquire the interpreter lock after each system call. CPU is the processor time of this process.
The lines for raw files run the same system calls without the store; the difference is the cost of the store.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bearlake.objects import ByteRange, ObjectStore
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.local import LocalObjectStore, LocalSettings
from bearlake.objects.open import ObjectStoreSettings, open_store

KIB, MIB = 1024, 1024 * 1024
PART_BYTES = 64 * KIB
SIZES = {64 * KIB: 200, MIB: 60, 8 * MIB: 12}  # bytes of an object: calls per round
BUSY_STEP_S = 0.0002


def name_of(size: int) -> str:
    """Return a size with its unit."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


async def timed(label: str, size: int, count: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Run `call` `count` times and print the median time, its rate, and CPU per call."""
    walls = []
    cpu_s = time.process_time()
    for at in range(count):
        start_s = time.perf_counter()
        await call(at)
        walls.append(time.perf_counter() - start_s)
    cpu_us = (time.process_time() - cpu_s) / count * 1e6
    walls.sort()
    median_s = statistics.median(walls)
    print(
        f"{label:34} {name_of(size):>7}  p50 {median_s * 1e6:8.0f} µs  p99 {walls[int(count * 0.99)] * 1e6:8.0f} µs"
        f"  {size / median_s / 1e6:6.0f} MB/s  CPU {cpu_us:7.0f} µs",
        flush=True,
    )


async def keep_busy(stop: asyncio.Event) -> None:
    """Use the event loop in short steps until `stop` is set."""
    while not stop.is_set():
        end_s = time.perf_counter() + BUSY_STEP_S
        while time.perf_counter() < end_s:
            sum(range(100))
        await asyncio.sleep(0)


async def measure(label: str, store: ObjectStore, rounds: int) -> None:
    """Measure puts and reads of each size, and print a line per size."""
    for size, per_round in SIZES.items():
        parts = [memoryview(os.urandom(PART_BYTES))] * (size // PART_BYTES)
        count = per_round * rounds

        async def put(at: int, name: str = "idle", size: int = size, parts: list[memoryview] = parts) -> None:
            await store.put(f"{name}/{size}/{at:06d}", parts)

        await put(count)
        await timed(f"{label} put", size, count, put)
        if size == 64 * KIB:
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(keep_busy(stop))
                await timed(f"{label} put, busy loop", size, count, lambda at: put(at, "busy"))
                stop.set()
        await store.delete([found.key async for found in store.list("busy/")])
    await timed(f"{label} read", MIB, 60 * rounds, lambda at: store.read(f"idle/{MIB}/{at:06d}", [ByteRange(0, MIB)]))
    small = [ByteRange(at * 100_000, at * 100_000 + 4096) for at in range(10)]
    await timed(f"{label} read 10 x 4 KiB", 40 * KIB, 60 * rounds, lambda at: store.read(f"idle/{MIB}/{at:06d}", small))
    await store.delete([found.key async for found in store.list("")])
    await store.close()


async def measure_raw(label: str, folder: Path, *, fsync: bool, rounds: int) -> None:
    """The same file work, blocking and without a store."""
    for size, per_round in SIZES.items():
        content = os.urandom(size)

        async def write(at: int, content: bytes = content) -> None:
            descriptor = os.open(folder / f"raw-{at}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(descriptor, content)
            if fsync:
                os.fdatasync(descriptor)
            os.close(descriptor)
            if fsync:
                descriptor = os.open(folder, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)

        await timed(f"{label} raw file", size, per_round * rounds, write)
        for at in range(per_round * rounds):
            (folder / f"raw-{at}").unlink()


async def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="What the object stores cost.")
    parser.add_argument("--disk", default="/var/tmp", help="a folder on a real disk")
    parser.add_argument("--tmpfs", default="/dev/shm", help="a folder in memory")
    parser.add_argument("--s3", default=None, help="s3://bucket/prefix; endpoint and credentials from the environment")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name in ("tmpfs", "disk"):
        for fsync in (True, False):
            with tempfile.TemporaryDirectory(dir=getattr(arguments, name)) as folder:
                label = f"{name} {'fsync' if fsync else 'no fsync'}"
                await measure_raw(label, Path(folder), fsync=fsync, rounds=arguments.rounds)
                store = LocalObjectStore(Path(folder) / "objects", LocalSettings(fsync=fsync))
                await measure(label, store, arguments.rounds)
    if arguments.s3 is not None:
        settings = ObjectStoreSettings(cloud=CloudSettings())
        await measure("s3", open_store(arguments.s3, settings), arguments.rounds)


if __name__ == "__main__":
    asyncio.run(main())
