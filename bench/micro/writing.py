"""CPU time of a full object on the write path, by step: from the sealed buffer to the answers, with SQLite.

    python bench/micro/writing.py [--objects 200] [--rounds 5] [--folder /dev/shm] [--shape 1000x1]

Each object has `batches` batches of 1 KiB in each of `partitions` partitions. CPU time of the thread, in microseconds per batch, the best
round: `seal` copies the batches and makes the commit, `commit` decides it and writes it to SQLite, `apply` writes the offsets into the
bytes and adds the slices to the tail index, `answer` gives the outcomes to the calls. A round ends with a roll-up, which is not counted.
"""

import argparse
import asyncio
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from bearlake.clock import SystemClock
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import ObjectRef, ServerRef, Stream
from bearlake.metadata.open import open_metadata
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records.codec import Record, encode
from bearlake.streams import outcomes
from bearlake.streams.append import Append, AppendCall
from bearlake.streams.buffer import OpenBuffer, seal
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams
from bearlake.streams.writer_settings import WriterSettings

SHAPES = ((1, 1), (1, 64), (16, 16), (1000, 1))
STEPS = ("seal", "commit", "apply", "answer")
OBJECT_BYTES = 1 << 27


class Source:
    """Fills buffers; producers (if any) write their next sequence."""

    def __init__(self, stream: Stream, partition_count: int, batch_count: int, *, is_idempotent: bool) -> None:
        self._stream = stream
        self._partition_count = partition_count
        self._batch_count = batch_count
        self._is_idempotent = is_idempotent
        self._batch = encode([Record(value=bytes(950))])
        self._sequence = 0

    def buffer(self) -> OpenBuffer:
        """Return a buffer with one call per partition."""
        buffer = OpenBuffer(WriterSettings(object_bytes_max=OBJECT_BYTES))
        first = self._sequence
        self._sequence += self._batch_count
        stream_id = self._stream.id.bytes
        for index in range(self._partition_count):
            partition = self._stream.partition(index)
            producer = (index, 0) if self._is_idempotent else (-1, -1)
            appends = [
                Append(
                    partition, stream_id, self._batch, None, 1, 0, *producer, sequence if self._is_idempotent else -1, 0
                )
                for sequence in range(first, self._sequence)
            ]
            buffer.batches.add(AppendCall(appends, lambda call: None, 0), appends, 0, 0)
        return buffer


async def measure(folder: str, shape: tuple[int, int], options: argparse.Namespace, *, is_idempotent: bool) -> str:
    """Return a line with the microseconds per batch of each step."""
    with tempfile.TemporaryDirectory(dir=folder) as path:
        metadata = await open_metadata(f"sqlite://{Path(path)}/metadata.db")
        registration = await registering.register(
            metadata.servers, "bench", zone=None, endpoints={}, version="", timeout_ms=600_000
        )
        store = MemoryObjectStore(SystemClock())
        streams = Streams(metadata, store, registration.server, random_source=random.Random(1))
        await streams.start()
        view = await streams.create(ANONYMOUS, "bench", shape[0], {})
        await metadata.log.head()
        source = Source(view.stream, *shape, is_idempotent=is_idempotent)
        number = 0
        best = [float("inf")] * len(STEPS)
        for _ in range(options.rounds):
            spent = [0] * len(STEPS)
            streams._follower._tail.reset(await metadata.log.head())
            for _ in range(options.objects):
                number += 1
                for at, part in enumerate(_write(streams, metadata, registration.server, source.buffer(), number)):
                    spent[at] += part
            best = [min(pair) for pair in zip(best, spent, strict=True)]
            await metadata.log.maintain(entry_count_min=1)
        await streams.close()
        await metadata.close()
    scale = options.objects * shape[0] * shape[1] * 1000
    kind = "idempotent" if is_idempotent else "plain"
    parts = "".join(f"{part / scale:9.3f}" for part in (*best, sum(best)))
    return f"{shape[0]:10,} x {shape[1]:3} {kind:>11}{parts}"


def _write(streams: Streams, metadata: Metadata, server: ServerRef, buffer: OpenBuffer, number: int) -> list[int]:
    """Write one object; returns the nanoseconds of each step."""
    commit_here = metadata.log._commits.commit  # type: ignore[attr-defined]
    times = [time.thread_time_ns()]
    sealed = seal(buffer, server)
    queued, target, batches = sealed.queued, sealed.buffer, sealed.batches
    key = f"wal/{number:032}"
    commit = sealed.commit(key, server)
    times.append(time.thread_time_ns())
    result = commit_here(commit)
    times.append(time.thread_time_ns())
    others = outcomes.count(result, queued.size)
    streams._on_committed(ObjectRef(key, len(target)), target, result)
    times.append(time.thread_time_ns())
    for call in queued.resolve(
        streams._writer._answering._unstored.answers_committed(number, batches, result.outcomes)
    ):
        call.done()  # type: ignore[attr-defined]
    times.append(time.thread_time_ns())
    assert not others
    assert result.position == streams._follower._tail.position
    return [after - before for before, after in pairwise(times)]


def main() -> None:
    """Run by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--shape", help="PARTITIONSxBATCHES instead of all shapes")
    options = parser.parse_args()
    shapes = SHAPES if options.shape is None else (tuple(map(int, options.shape.split("x"))),)
    print(
        f"{'partitions':>10}   {'batches':>15}"
        + "".join(f"{step:>9}" for step in (*STEPS, "all"))
        + "   (us per batch)"
    )
    for shape in shapes:
        for is_idempotent in (False, True):
            print(asyncio.run(measure(options.folder, shape, options, is_idempotent=is_idempotent)), flush=True)


if __name__ == "__main__":
    main()
