"""Figures of the record-batch kernel: `python bench/micro/kernel.py`. Best of several runs, one thread, data in cache unless noted."""

import os
import timeit
from collections.abc import Callable
from struct import Struct

from bearlake import kernel
from bearlake.wal.format import Part
from bearlake.wal.writer import seal

HEADER = Struct(">qiibI")
FIELDS = Struct(">hiqqqhii")


def best(function: Callable[[], object], seconds: float = 0.2) -> float:
    """Seconds per call."""
    number, spent = timeit.Timer(function).autorange()
    count = max(1, int(number * seconds / max(spent, 1e-9) / 7))
    return min(timeit.repeat(function, number=count, repeat=7)) / count


def batch(size: int, record_count: int = 1) -> bytes:
    """A record batch of `size` bytes with random records."""
    body = FIELDS.pack(
        0, record_count - 1, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, record_count
    ) + os.urandom(size - 61)
    return HEADER.pack(0, size - 12, -1, 2, kernel.crc32c(body)) + body


def produce_body(partitions: int, size: int) -> bytes:
    """A Produce body, version 9, with one topic."""
    entry = b"".join(index.to_bytes(4, "big") + varint(size + 1) + batch(size) + b"\0" for index in range(partitions))
    return b"\0\xff\xff\0\0\x75\x30\x02\x06topic" + varint(partitions + 1) + entry + b"\0\0"


def varint(value: int) -> bytes:
    """Return the unsigned varint of `value`."""
    return bytes([value]) if value < 128 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def show(what: str, seconds: float, size: int = 0) -> None:
    """Print one line: what was measured, its time, and its throughput if `size` is given."""
    rate = f"{size / seconds / 1e9:8.2f} GB/s" if size else ""
    print(f"{what:58} {seconds * 1e6:10.2f} us {rate}")


def checksums() -> None:
    """Measure CRC-32C."""
    for size in (200, 1 << 10, 16 << 10, 100 << 10, 1 << 20, 64 << 20):
        block = os.urandom(size)
        show(
            f"crc32c {size} bytes{' (from memory)' if size > 32 << 20 else ''}",
            best(lambda b=block: kernel.crc32c(b)),
            size,
        )


def requests() -> None:
    """Measure the parsing of Produce requests, the inspection of batches, and the encoding of responses."""
    for partitions, size in ((1, 1 << 10), (1, 16 << 10), (1, 1 << 20), (100, 1 << 10), (1000, 1 << 10)):
        body = produce_body(partitions, size)
        show(
            f"parse_produce {partitions} x {size} bytes", best(lambda b=body: kernel.parse_produce(b, 0, 9)), len(body)
        )
    small = batch(1 << 10)
    show("inspect 1024 bytes", best(lambda: kernel.inspect(small, 0, len(small))))
    for count in (1, 100):
        results = [("topic", index, 0, 123456, -1, 0) for index in range(count)]
        show(f"encode_produce_response {count}", best(lambda r=results: kernel.encode_produce_response(9, 1, r, 0)))


def serving() -> None:
    """Measure what a Fetch does with stored batches."""
    count = 8192
    buffer = bytearray(batch(1 << 10) * count)
    many = [(0, 10 * index, 1, index << 10, 1 << 10, 0) for index in range(count)]
    show("rebase 8192 slices of 1 batch, 1 KiB each", best(lambda: kernel.rebase(buffer, many, 0)))
    slices = [(0, 0, count, 0, len(buffer), 0)]
    show("rebase 1 slice of 8192 batches, 1 KiB each", best(lambda: kernel.rebase(buffer, slices, 0)))
    show("seek to the last of 8192 batches", best(lambda: kernel.seek(buffer, 0, len(buffer), count - 1)))
    show("take 1 MiB of 1 KiB batches", best(lambda: kernel.take(buffer, 0, len(buffer), 1 << 20)))
    show("batches, 1024 of 1 KiB", best(lambda: kernel.batches(buffer, 0, 1 << 20)))


def records() -> None:
    """Measure the checks of records."""
    body = b"".join(_record(index) for index in range(1000))
    assert kernel.check_records(body, 1000) == -1
    show("check_records, 1000 of 100 bytes", best(lambda: kernel.check_records(body, 1000)), len(body))
    show("find_timestamp, last of 1000", best(lambda: kernel.find_timestamp(body, 1000, 0, 999)), len(body))


def _record(index: int) -> bytes:
    inner = b"\0" + varint(2 * index) * 2 + b"\x01" + varint(200) + b"v" * 100 + b"\0"
    return varint(2 * len(inner)) + inner


def sealing() -> None:
    """Measure the sealing of WAL objects."""
    for partitions, batches, size in ((1, 8, 1 << 20), (16, 32, 16 << 10), (1000, 8, 1 << 10), (1000, 1, 1 << 10)):
        block = batch(size)
        chunks = [memoryview(bytes(block)) for _ in range(batches)]
        parts = [Part(b"s" * 16, index, chunks) for index in range(partitions)]
        total = partitions * batches * size
        spent = best(lambda p=parts: seal(p, node_id=1, server_epoch=1))
        joined = best(lambda c=chunks * partitions: bytearray().join(c))
        share = (spent - joined) / (partitions * batches) * 1e6
        show(f"seal {partitions} x {batches} x {size} bytes (+{share:.3f} us per batch over a join)", spent, total)


if __name__ == "__main__":
    print(f"native: {kernel.IS_NATIVE}")
    for section in (checksums, requests, serving, records, sealing):
        section()
