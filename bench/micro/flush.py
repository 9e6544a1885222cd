"""CPU and wall time of one flush: one append at a time through the write path, as at low load.

    python bench/micro/flush.py [--folder /dev/shm] [--count 2000] [--rounds 5] [--bytes 1024] [--busy]

One small batch is submitted, stored in a local folder, committed to SQLite and answered; then the next batch. CPU is that of the whole
process, all threads, per flush; wall time is that of one append, without any protocol around it. Switches are context switches of all
threads per flush. With `--busy`, the event loop works 200 µs of every 400 µs meanwhile, as in a loaded server; this work is not counted.
"""

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from bearlake.metadata import registering
from bearlake.metadata.open import open_metadata
from bearlake.objects.open import open_store
from bearlake.records.codec import Record, encode
from bearlake.streams.append import Append, Verdict
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams
from bearlake.telemetry.object_calls import ObjectCalls

BUSY_STEP_S = 0.0002


class BusyLoop:
    """Uses the event loop in steps with pauses of the same length; `worked_s` is the CPU time of its steps (s)."""

    def __init__(self) -> None:
        self.worked_s = 0.0

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            started_s = time.thread_time()
            while time.thread_time() - started_s < BUSY_STEP_S:
                sum(range(100))
            self.worked_s += time.thread_time() - started_s
            await asyncio.sleep(BUSY_STEP_S)


def switch_count() -> int:
    """Return the context switches of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


async def measure(folder: Path, count: int, rounds: int, size: int, *, is_busy: bool) -> None:
    """Print CPU, wall time and context switches per flush, one line per round."""
    metadata = await open_metadata(f"sqlite://{folder}/metadata.db")
    store = open_store(f"file://{folder}/objects", recorder=ObjectCalls())
    registration = await registering.register(
        metadata.servers, "bench", zone=None, endpoints={}, version="1", timeout_ms=600_000
    )
    streams = Streams(metadata, store, registration.server)
    await streams.start()
    running = asyncio.create_task(streams.run())
    view = await streams.create(ANONYMOUS, "bench", 1, {})
    now_ms = time.time_ns() // 1_000_000
    batch = encode([Record(value=bytes(size), timestamp=now_ms)])
    append = Append(view.partition(0), view.stream.id.bytes, batch, None, 1, now_ms, -1, -1, -1, 0)
    busy = BusyLoop()
    working = asyncio.create_task(busy.run()) if is_busy else None
    for _ in range(rounds):
        walls = []
        cpu_s, switches = time.process_time() - busy.worked_s, switch_count()
        for _ in range(count):
            started_s = time.perf_counter()
            (result,) = await streams.append([append], streams.seen.position)
            walls.append(time.perf_counter() - started_s)
            assert result[0] == Verdict.ACCEPTED, result
        cpu_us = (time.process_time() - busy.worked_s - cpu_s) / count * 1e6
        print(
            f"CPU {cpu_us:5.0f} us   p50 {statistics.median(walls) * 1e6:5.0f} us   p99 {sorted(walls)[count * 99 // 100] * 1e6:6.0f} us"
            f"   {(switch_count() - switches) / count:5.1f} switches"
        )
    if working is not None:
        working.cancel()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await streams.close()
    await store.close()
    await metadata.close()


def main() -> None:
    """Run by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(measure(Path(folder), options.count, options.rounds, options.bytes, is_busy=options.busy))


if __name__ == "__main__":
    main()
