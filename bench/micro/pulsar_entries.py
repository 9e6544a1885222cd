"""Cost of converting Pulsar entries to record batches and back: `python bench/micro/pulsar_entries.py`.

Each figure is CPU time, the best of several runs, with the data in cache.

Messages are like those of `pulsar-perf`: a sequence id and a payload. Half of each compressible payload is repetition. "Many" are the
hot paths: SENDs of a receive buffer to batches in the write buffer, their receipts, and deliveries to MESSAGE commands, each by one native
call. "Parsed" SENDs are those whose batches Python must check.
"""

import os
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from struct import Struct

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.pulsar_frames import Entry

from bearlake import kernel
from bearlake.kernel import PartitionKey
from bearlake.protocols.pulsar import entries
from bearlake.protocols.pulsar.proto.metadata_pb2 import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)
from bearlake.records import blocks
from bench import pulsar_frames

REPEATS = 20
SIZE = Struct(">I")
CODECS = {"plain": NONE, "lz4": LZ4, "snappy": SNAPPY, "zstd": ZSTD, "zlib": ZLIB}


def best(function: Callable[[], object], seconds: float = 0.05) -> float:
    """CPU seconds per call."""
    number, spent = timeit.Timer(function, timer=time.thread_time).autorange()
    count = max(1, int(number * seconds / max(spent, 1e-9) / REPEATS))
    return min(timeit.repeat(function, number=count, repeat=REPEATS, timer=time.thread_time)) / count


def value(size: int) -> bytes:
    """Return a value of which half is random."""
    return os.urandom(size // 2) + b"x" * (size - size // 2)


def batch(message_bytes: int, batch_bytes: int, is_keyed: bool) -> bytes:
    """The payload of a batch."""
    out = bytearray()
    for index in range(batch_bytes // message_bytes):
        single = SingleMessageMetadata(payload_size=message_bytes, sequence_id=1_000_000 + index)
        if is_keyed:
            single.partition_key = f"key-{index:08}"
            single.properties.extend([KeyValue(key="source", value="sensor-7")])
        head = single.SerializeToString()
        out += SIZE.pack(len(head)) + head + value(message_bytes)
    return bytes(out)


def entry(payload: bytes, count: int | None, codec: int) -> tuple[MessageMetadata, bytes]:
    """Return the metadata of a Pulsar entry of `count` messages, and its compressed payload."""
    head = MessageMetadata(
        producer_name="standalone-0-1",
        sequence_id=1_000_000,
        publish_time=1_700_000_000_000,
        compression=codec,
        uncompressed_size=len(payload),
        num_messages_in_batch=count,
    )
    return head, bytes(blocks.compress(blocks.BlockCodec(codec), payload))


def show(what: str, seconds: float, count: int, size: int) -> None:
    """Print one line: what was measured, its time, and the rate of messages and bytes."""
    print(
        f"{what:52} {seconds * 1e6:9.2f} us {count / seconds / 1e6:7.2f} M messages/s {size / seconds / 1e6:8.0f} MB/s"
    )


def both_ways(what: str, head: MessageMetadata, payload: bytes, count: int, size: int) -> None:
    """Measure the conversion of one entry to a record batch and back."""
    stored = memoryview(entries.to_batch(head, payload).batch)
    show(f"to batch    {what}", best(lambda: entries.to_batch(head, payload)), count, size)
    show(f"from batch  {what}", best(lambda: entries.from_batch(stored, 10**6)), count, size)
    if count == 1:
        show(f"routing     {what}", best(lambda: entries.routing(stored)), count, size)


def many(entry_: Entry) -> None:
    """SENDs of about 64 KiB, the record batches that result, and their receipts."""
    frame = bytearray(pulsar_frames.send(entry_))
    at = 2 * SIZE.size + SIZE.unpack_from(frame, SIZE.size)[0] + 2
    SIZE.pack_into(frame, at, kernel.crc32c(frame, at + SIZE.size))
    entry_count = max(1, (64 << 10) // len(frame))
    frames = bytes(frame) * entry_count
    size = entry_count * entry_.payload_bytes
    sends = kernel.parse_sends(frames, 0, len(frames), entry_count, len(frames), len(frames))
    assert len(sends) == entry_count
    producer_id, bound = sends[0][0], 1 << 62
    binding = kernel.SendBinding(producer_id, PartitionKey(1 << 20), bytes(16), bound, -bound, bound, 1, 0, -1, 0)

    def take() -> tuple[kernel.WriteBuffer, kernel.SendResults]:
        buffer, call = kernel.WriteBuffer(1 << 30), kernel.SendResults((0, -1, -1))
        kernel.take_sends(buffer, call, frames, 0, len(frames), binding, entry_count, len(frames), len(frames), 0)
        return buffer, call

    buffer, taken = take()
    buffer.join(0, 0)
    buffer.resolve([(0, place, 0) for place in range(entry_count)])
    given = [(0, count, memoryview(batch), 0, ()) for _, _, _, _, batch, count, _, _ in sends]
    what = f"{entry_.message_count} x {entry_.message_bytes} B, per entry of {entry_count}"
    for name, call in (
        ("SENDs", take),
        ("parsed", lambda: kernel.parse_sends(frames, 0, len(frames), entry_count, len(frames), len(frames))),
        ("receipts", lambda: taken.receipts(1, 2, -1)),
        ("MESSAGEs", lambda: kernel.encode_messages(given, 0, 1, 2, -1, None, len(frames), 2 * len(frames))),
    ):
        show(f"{name:11} {what}", best(call) / entry_count, entry_.message_count, size // entry_count)


def main() -> None:
    """Run the command."""
    print(f"native: {kernel.IS_NATIVE}")
    for message_bytes, batch_bytes in ((100, 10_000), (100, 64 << 10), (1024, 10_000), (1024, 64 << 10)):
        for is_keyed in (False, True):
            payload = batch(message_bytes, batch_bytes, is_keyed)
            count = batch_bytes // message_bytes
            for name, codec in CODECS.items():
                if codec == NONE or not is_keyed:
                    what = f"{count} x {message_bytes} B, {name}{', key and property' if is_keyed else ''}"
                    both_ways(what, *entry(payload, count, codec), count, count * message_bytes)
    for message_count, message_bytes in ((1, 1024), (100, 100), (64, 1024)):
        many(Entry(message_count=message_count, message_bytes=message_bytes))
    for message_bytes in (100, 1024):
        both_ways(f"1 x {message_bytes} B, unbatched", *entry(value(message_bytes), None, NONE), 1, message_bytes)


if __name__ == "__main__":
    main()
