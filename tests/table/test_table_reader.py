"""Data files back into batches: footers, blocks, look-ups by time; damaged files are reported as corrupt."""

import asyncio
import gc
import random
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bearlake import kernel
from bearlake.errors import Corrupt, NotFound
from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records.codec import Record, decode, encode
from bearlake.table.blocks import Block, Rows
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.value_pages import pages_of
from bearlake.table.writer import DataFileWriter, record_batch
from fixtures.waiting import WAIT_S

Batches = dict[tuple[int, int], bytes]
"""(partition index, base offset) → the batch"""


async def write(
    store: MemoryObjectStore, key: str, groups: list[list[tuple[int, int, list[int]]]]
) -> tuple[ObjectRef, Batches]:
    """A data file; each row group is a list of batches (partition index, base offset, timestamps)."""
    writer = DataFileWriter(key)
    batches: Batches = {}
    for group in groups:
        builder = kernel.ColumnBuilder()
        for partition, base, times in group:
            raw = encode([Record(value=b"%d" % time, timestamp=time) for time in times])
            builder.append(partition, base, raw, 0, len(raw), [])
            batches[partition, base] = raw
        writer.write(record_batch(builder.take()))
    finished = writer.finish()
    await store.put(key, finished.parts)
    return ObjectRef(key, finished.file.size, ObjectKind.PARQUET), batches


def reader_of(store: MemoryObjectStore, **more: int) -> DataFileReader:
    return DataFileReader(store, DataFileSettings(thread_count=0, **more))


def content(block: Block, partition: int, start: int, end: int) -> list[tuple[int, int]]:
    """(base offset, number of records) of the batches in the views."""
    return [
        (base, header.record_count)
        for _, _, view in block.views(partition, start, end)
        for _, base, header in kernel.batches(view, 0, len(view))
    ]


TWO_PARTITIONS = [[(0, 0, [1, 2]), (0, 2, [3]), (0, 7, [4, 5]), (3, 10, [6])], [(3, 11, [7, 8]), (3, 13, [9])]]


async def test_a_footer_shows_which_row_groups_may_have_an_offset() -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS)

    footer = await reader_of(store).footer(ref)

    assert [(group.row_start, group.row_end) for group in footer.groups] == [(0, 6), (6, 9)]
    assert [
        footer.holding(*rows) for rows in ((0, 0, 9), (3, 10, 14), (3, 0, 10), (3, 13, 99), (1, 0, 99), (4, 0, 9))
    ] == [
        [0],
        [0, 1],
        [0],  # a row group of several partitions may have the offset
        [1],  # unless a later one begins at or before it
        [0],
        [],
    ]
    assert [footer.offset_end(0, 0, 99), footer.offset_end(0, 3, 99), footer.offset_end(1, 3, 99)] == [99, 11, 14]
    assert footer.groups[1].timestamp_max == 9_000


async def test_row_groups_after_the_last_row_of_a_range_are_not_read() -> None:
    store = MemoryObjectStore()
    groups = [[(0, 0, [1, 2])], [(0, 5, [3]), (0, 9, [4])], [(0, 12, [5]), (1, 0, [6])]]
    ref, _ = await write(store, "a.parquet", groups)

    footer = await reader_of(store).footer(ref)

    assert footer.holding(0, 6, 8) == [
        1
    ]  # this row group has later rows but not this one, so the next one cannot have it
    assert footer.holding(0, 2, 5) == []
    assert footer.holding(0, 10, 12) == [2]  # a row group of two partitions may have the offset
    assert footer.holding(0, 0, 10) == [0, 1]
    assert footer.holding(0, 9, 13) == [1, 2]


async def test_a_path_names_a_part_of_a_column_and_a_name_all_of_it() -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS)
    footer = await reader_of(store).footer(ref)

    (part,) = footer.ranges_of(0, ["_batch.attributes"])
    (whole,) = footer.ranges_of(0, ["_batch"])

    assert whole.start < part.start < part.end < whole.end
    assert footer.ranges_of(0, ["_batch", "_batch.attributes"]) == [whole]
    assert footer.ranges_of(0, ["_bat", "_batch.attr", "attributes"]) == []


async def test_runs_end_at_gaps_and_are_cut_at_batches() -> None:
    store = MemoryObjectStore()
    ref, batches = await write(store, "a.parquet", TWO_PARTITIONS)
    reader = reader_of(store)
    footer = await reader.footer(ref)

    block = await reader.block(ref, footer, 0)

    assert [(run.start, run.end) for run in block.runs[0]] == [(0, 3), (7, 9)]
    assert content(block, 0, 0, 100) == [(0, 2), (2, 1), (7, 2)]
    assert content(block, 0, 1, 3) == [(0, 2), (2, 1)]
    assert content(block, 0, 2, 7) == [(2, 1)]
    assert content(block, 0, 4, 7) == []
    assert content(block, 3, 0, 100) == [(10, 1)]
    assert content(block, 1, 0, 100) == []
    assert [(start, end) for start, end, _ in block.views(0, 1, 9)] == [(1, 3), (7, 9)]
    ((_, _, view),) = block.views(3, 10, 11)
    assert bytes(view[21:]) == batches[3, 10][21:]


async def test_a_footer_longer_than_the_first_read_is_read_again() -> None:
    store = MemoryObjectStore()
    groups = [[(0, 10 * number, [number])] for number in range(50)]
    ref, _ = await write(store, "a.parquet", groups)

    footer = await reader_of(store, footer_bytes=100).footer(ref)

    assert len(footer.groups) == 50


async def test_a_missing_file_is_not_found() -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS)
    reader = reader_of(store)
    footer = await reader.footer(ref)
    await store.delete([ref.key])

    with pytest.raises(NotFound):
        await reader.footer(ref)
    with pytest.raises(NotFound):
        await reader.block(ref, footer, 0)


async def test_a_file_shorter_than_in_the_index_is_corrupt() -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS)

    with pytest.raises(Corrupt, match=r"a\.parquet"):
        await reader_of(store).footer(ref._replace(size=ref.size + 1))


@pytest.mark.parametrize("content_", [b"", b"PAR1", b"x" * 100, b"\xff\xff\xff\x7fPAR1", b"x" * 50 + b"\x20\0\0\0PAR1"])
async def test_a_file_of_another_format_is_corrupt(content_: bytes) -> None:
    store = MemoryObjectStore()
    await store.put("a.parquet", [content_])

    with pytest.raises(Corrupt, match=r"a\.parquet"):
        await reader_of(store).footer(ObjectRef("a.parquet", len(content_), ObjectKind.PARQUET))


async def test_a_parquet_file_of_another_table_is_corrupt() -> None:
    store = MemoryObjectStore()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2]}), sink)
    raw = sink.getvalue().to_pybytes()
    await store.put("a.parquet", [raw])

    with pytest.raises(Corrupt, match="_partition_id"):
        await reader_of(store).footer(ObjectRef("a.parquet", len(raw), ObjectKind.PARQUET))


async def test_rows_without_their_batch_are_corrupt() -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS)
    (whole,) = await store.read(ref.key, [(0, ref.size)])  # type: ignore[list-item]
    table = pq.read_table(pa.BufferReader(bytes(whole)))
    nullable = pa.struct([field.with_nullable(True) for field in table.schema.field("_batch").type])
    bare = table.set_column(6, pa.field("_batch", nullable), pa.nulls(table.num_rows, nullable))
    sink = pa.BufferOutputStream()
    pq.write_table(bare, sink)
    raw = sink.getvalue().to_pybytes()
    await store.put("b.parquet", [raw])
    reader = reader_of(store)
    other = ObjectRef("b.parquet", len(raw), ObjectKind.PARQUET)
    footer = await reader.footer(other)

    with pytest.raises(Corrupt, match=r"b\.parquet"):
        await reader.block(other, footer, 0)


async def block_of(store: MemoryObjectStore, ref: ObjectRef) -> Block:
    reader = reader_of(store)
    return await reader.block(ref, await reader.footer(ref), 0)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "snappy"},
        {"compression": "none"},
        {"compression": "zstd", "use_dictionary": ["_value"]},
        {"compression": "zstd", "use_dictionary": False, "data_page_version": "2.0"},
        {"compression": "zstd", "use_dictionary": False, "column_encoding": {"_value": "DELTA_LENGTH_BYTE_ARRAY"}},
        {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True},
        {"compression": "zstd", "use_dictionary": False, "write_statistics": True, "data_page_size": 1},
        {"compression": "zstd", "use_dictionary": False, "write_page_index": True},
    ],
)
async def test_a_file_of_another_engine_gives_the_same_batches_whatever_its_pages_are(options: dict[str, Any]) -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS[:1])
    (whole,) = await store.read(ref.key, [(0, ref.size)])  # type: ignore[list-item]
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(bytes(whole))), sink, **options)
    raw = sink.getvalue().to_pybytes()
    await store.put("b.parquet", [raw])

    found = await block_of(store, ObjectRef("b.parquet", len(raw), ObjectKind.PARQUET))

    assert found == await block_of(store, ref)


async def test_values_of_our_files_are_read_from_their_pages() -> None:
    store = MemoryObjectStore()
    ref, batches = await write(store, "a.parquet", [[(0, 0, list(range(5_000)))]])
    (whole,) = await store.read(ref.key, [(0, ref.size)])  # type: ignore[list-item]
    footer = await reader_of(store).footer(ref)
    chunk = footer.values(0)
    assert chunk is not None

    pages = pages_of(memoryview(whole)[chunk.start : chunk.end], chunk)

    assert pages is not None
    assert sum(count for _, count in pages) == 5_000
    block = await block_of(store, ref)
    ((_, _, view),) = block.views(0, 0, 5_000)
    assert decode(bytes(view), 1 << 20) == decode(batches[0, 0], 1 << 20)


async def test_a_page_that_claims_more_bytes_than_its_column_is_left_to_arrow() -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", [[(0, 0, list(range(5_000)))]])
    (whole,) = await store.read(ref.key, [(0, ref.size)])  # type: ignore[list-item]
    footer = await reader_of(store).footer(ref)
    chunk = footer.values(0)
    assert chunk is not None
    bytes_of = memoryview(whole)[chunk.start : chunk.end]

    assert pages_of(bytes_of, chunk._replace(size_bytes=100)) is None
    assert pages_of(bytes_of[:5], chunk) is None
    assert pages_of(bytes_of, chunk._replace(row_count=6_000)) is None


@pytest.mark.parametrize("seed", range(200))
async def test_damaged_bytes_are_corrupt_or_decode_without_another_error(seed: int) -> None:
    draw = random.Random(seed)
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS)
    (whole,) = await store.read(ref.key, [(0, ref.size)])  # type: ignore[list-item]
    raw = bytearray(whole)
    for _ in range(draw.randint(1, 20)):
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    await store.put("b.parquet", [bytes(raw)])
    other = ref._replace(key="b.parquet")
    reader = reader_of(store)

    with suppress(Corrupt):
        footer = await reader.footer(other)
        for group in range(len(footer.groups)):
            await reader.block(other, footer, group)
            await reader.first_at(other, footer, group, Rows(0, 0, 100), None)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    times=st.lists(st.lists(st.integers(-1, 20), min_size=1, max_size=4), min_size=1, max_size=8),
    start=st.integers(0, 20),
    end=st.integers(0, 32),
    timestamp=st.integers(-1, 21) | st.none(),
)
def test_times_are_found_as_by_a_search_through_all_rows(
    times: list[list[int]], start: int, end: int, timestamp: int | None
) -> None:

    async def find() -> tuple[int, int] | None:
        store = MemoryObjectStore()
        base, group = 0, []
        for file_times in times:
            group.append((2, base, file_times))
            base += len(file_times)
        ref, _ = await write(store, "a.parquet", [[(1, 0, [30]), *group, (3, 0, [30])]])
        reader = reader_of(store)
        return await reader.first_at(ref, await reader.footer(ref), 0, Rows(2, start, end), timestamp)

    rows = [
        (offset, time)
        for offset, time in enumerate(time for file_times in times for time in file_times)
        if start <= offset < end
    ]
    least = max((time for _, time in rows), default=0) if timestamp is None else timestamp

    assert asyncio.run(find()) == next((row for row in rows if row[1] >= least), None)


async def test_threads_decode_and_are_released() -> None:
    store = MemoryObjectStore()
    ref, batches = await write(store, "a.parquet", TWO_PARTITIONS)
    reader = DataFileReader(store, DataFileSettings(thread_count=2))

    block = await reader.block(ref, await reader.footer(ref), 1)
    await reader.close()

    ((_, _, view),) = block.views(3, 13, 14)
    assert decode(bytes(view), 1_000) == decode(batches[3, 13], 1_000)


async def test_a_cancelled_caller_waits_until_no_thread_decodes_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS)
    reader = DataFileReader(store, DataFileSettings(thread_count=1))
    footer = await reader.footer(ref)
    begun, may_end = threading.Event(), threading.Event()

    def slow_decode(*_: object) -> None:
        begun.set()
        assert may_end.wait(WAIT_S)

    monkeypatch.setattr("bearlake.table.reader._decode", slow_decode)
    running = asyncio.create_task(reader.block(ref, footer, 0))
    await asyncio.to_thread(begun.wait, WAIT_S)
    queued = asyncio.create_task(reader.block(ref, footer, 1))
    await asyncio.sleep(0)
    for task in (running, queued):
        task.cancel()
    ended, _ = await asyncio.wait([running, queued], return_when=asyncio.FIRST_COMPLETED)
    is_early = running.done()
    may_end.set()
    await asyncio.wait([running])

    assert (ended, is_early, running.cancelled()) == ({queued}, False, True)
    await reader.close()


async def test_an_error_of_a_thread_is_not_reported_after_two_cancellations(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    ref, _ = await write(store, "a.parquet", TWO_PARTITIONS)
    reader = DataFileReader(store, DataFileSettings(thread_count=1))
    footer = await reader.footer(ref)
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    begun, may_end, ended = threading.Event(), threading.Event(), asyncio.Event()

    def failing_decode(*_: object) -> None:
        begun.set()
        assert may_end.wait(WAIT_S)
        loop.call_soon_threadsafe(loop.call_soon, ended.set)
        raise Corrupt("damaged")

    monkeypatch.setattr("bearlake.table.reader._decode", failing_decode)
    running = asyncio.create_task(reader.block(ref, footer, 0))
    await asyncio.to_thread(begun.wait, WAIT_S)
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    is_cancelled = running.cancelled()
    may_end.set()
    await reader.footer(ref)  # the only thread has ended its call
    await ended.wait()
    del running
    gc.collect()

    assert (is_cancelled, reported) == (True, [])
    await reader.close()


def test_a_server_that_reads_no_history_does_not_import_pyarrow() -> None:
    program = (
        "import sys, bearlake.app.process, bearlake.protocols.kafka.server, bearlake.streams.service;"
        "print([name for name in ('pyarrow', 'pyiceberg', 'duckdb', 'pyspark') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=True)

    assert ran.stdout.strip() == "[]"
