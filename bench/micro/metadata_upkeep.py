"""What the upkeep of a metadata store costs commits: CPU and latency of commits with and without upkeep beside them.

    python bench/micro/metadata_upkeep.py [--store sqlite] [--partitions 1000] [--rate 50] [--seconds 10] [--repetitions 1]

Each commit has one slice for each partition. Commits begin `--rate` times per second (0: one after the other). `with` runs the upkeep task
of a server beside them, `without` does not. CPU seconds are those of this process and, with `--store postgresql`, of a PostgreSQL server
that the program starts. The last column is the roll-up's share: CPU with upkeep minus CPU without, in µs per slice.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, ServerRef, Stream, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.streams.upkeep import Upkeep, UpkeepSettings


def commit_of(number: int, server: ServerRef, stream: Stream, *, is_idempotent: bool) -> ObjectCommit:
    """Return the commit of an object with one batch of ten records per partition."""
    batches = [
        BatchCommit(key, index * 8192, 8192, 10, 1_700_000_000_000 + number, index, 0, 10 * number)
        if is_idempotent
        else BatchCommit(key, index * 8192, 8192, 10, 1_700_000_000_000 + number)
        for index in range(stream.partition_count)
        for key in [stream.partition(index)]
    ]
    return ObjectCommit(token=f"wal/{number:032}", server=server, size=8192 * len(batches), batches=batches)


async def commits(
    metadata: Metadata, commit: Callable[[int], ObjectCommit], rate: float, seconds: float
) -> list[float]:
    """Commit for `seconds`; return the latencies (s), each from the moment at which the commit was due."""
    latencies: list[float] = []
    started = time.perf_counter()
    while (now := time.perf_counter()) < started + seconds:
        due = started + len(latencies) / rate if rate else now
        made = commit(len(latencies))
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        due = due if rate else time.perf_counter()
        await metadata.log.commit(made)
        latencies.append(time.perf_counter() - due)
    return latencies


async def measure(url: str, arguments: argparse.Namespace, cpu_s: Callable[[], float], *, has_upkeep: bool) -> float:
    """Print a line of figures; return the CPU seconds per commit."""
    metadata = await open_metadata(url)
    stream = await metadata.streams.create(StreamSpec(name="bench", partition_count=arguments.partitions))
    registration = await registering.register(
        metadata.servers, "bench", zone=None, endpoints={}, version="", timeout_ms=600_000
    )

    def commit(number: int) -> ObjectCommit:
        return commit_of(number, registration.server, stream, is_idempotent=arguments.idempotent)

    upkeep = Upkeep(metadata.log, metadata.producers, UpkeepSettings())
    running = asyncio.create_task(upkeep.run()) if has_upkeep else None
    used = cpu_s()
    latencies = await commits(metadata, commit, arguments.rate, arguments.seconds)
    used = (cpu_s() - used) / len(latencies)
    if running is not None:
        running.cancel()
        await asyncio.wait([running])
    await metadata.close()
    count = len(latencies)
    latencies.sort()
    high = [latencies[min(count - 1, int(count * share))] * 1e3 for share in (0.5, 0.99, 1)]
    print(
        f"{arguments.partitions:10,} {'with' if has_upkeep else 'without':>8} {count:8,} {used * 1e3:21.2f}"
        + "".join(f"{figure:9.2f}" for figure in high),
        flush=True,
    )
    return used


@contextlib.contextmanager
def store(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the URL of an empty store, and a function that returns the CPU seconds used so far."""
    if arguments.store == "sqlite":
        with tempfile.TemporaryDirectory(dir=arguments.folder) as path:
            yield f"sqlite://{path}/metadata.db", time.process_time
        return
    from fixtures.postgresql import PostgresqlServer

    def cpu_s() -> float:
        """CPU of this process and of the server's processes that live."""
        total = time.process_time()
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:2])
        return total

    server = PostgresqlServer(fsync=True)
    try:
        server.start()
        yield server.url(), cpu_s
    finally:
        server.remove()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgresql"])
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--idempotent", action="store_true")
    arguments = parser.parse_args()
    print("partitions   upkeep  commits  CPU-s/1,000 commits   p50 ms   p99 ms   max ms")
    for _ in range(arguments.repetitions):
        used = []
        for has_upkeep in (False, True):
            with store(arguments) as (url, cpu_s):
                used.append(asyncio.run(measure(url, arguments, cpu_s, has_upkeep=has_upkeep)))
        print(f"roll-up: {(used[1] - used[0]) / arguments.partitions * 1e6:.2f} µs per slice", flush=True)


if __name__ == "__main__":
    main()
