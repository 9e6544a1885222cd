"""Figures of the kernel's columns: `python bench/micro/columns.py`. CPU time of one thread, best of several runs, data in cache."""

import os
import time
from collections.abc import Callable

from bearlake import kernel
from bearlake.records.codec import Record, encode

RUN_BYTES = 4 << 20


def best(function: Callable[[], object], seconds: float = 0.2, repeats: int = 7) -> float:
    """CPU seconds per call."""
    function()
    found = float("inf")
    for _ in range(repeats):
        count, start = 0, time.thread_time()
        while time.thread_time() - start < seconds / repeats:
            function()
            count += 1
        found = min(found, (time.thread_time() - start) / count)
    return found


def show(what: str, seconds: float, size: int) -> None:
    """Print one line: what was measured, its time, and its throughput."""
    print(f"{what:52} {seconds * 1e6:10.2f} us {size / seconds / 1e9:8.2f} GB/s")


def run_of(record_bytes: int, batch_bytes: int, header_count: int = 0) -> bytes:
    """Batches of about `batch_bytes`, `RUN_BYTES` together, whose records have keys of 8 bytes."""
    headers = tuple((f"header-{index}", b"value") for index in range(header_count))
    records = [
        Record(key=b"key%05d" % index, value=os.urandom(record_bytes - 8), timestamp=1_700_000_000_000, headers=headers)
        for index in range(batch_bytes // record_bytes)
    ]
    batch = encode(records)
    return batch * (RUN_BYTES // len(batch) + 1)


def measure(what: str, run: bytes) -> None:
    """Measure the decoding of `run` and the encoding of its columns."""
    builder = kernel.ColumnBuilder()

    def decode() -> kernel.Columns:
        builder.append(0, 0, run, 0, len(run), [])
        return builder.take()

    columns = decode()
    show(f"decode {what}", best(decode), len(run))
    show(f"encode {what}", best(lambda: kernel.encode_columns(columns, 0, columns.row_count)), len(run))


if __name__ == "__main__":
    print(f"native: {kernel.IS_NATIVE}; runs of {RUN_BYTES >> 20} MiB")
    for record_bytes in (100, 1 << 10):
        for batch_bytes in (16 << 10, 1 << 20):
            measure(f"{record_bytes} B records, {batch_bytes >> 10} KiB batches", run_of(record_bytes, batch_bytes))
    measure("100 B records, 16 KiB batches, 3 headers each", run_of(100, 16 << 10, 3))
    memory = run_of(1 << 10, 1 << 20)
    show("bytearray(...), a copy into fresh memory", best(lambda: bytearray(memory)), len(memory))
