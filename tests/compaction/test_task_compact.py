import random
import struct
import weakref
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake import kernel
from bearlake.compaction.model import ItemResult
from bearlake.compaction.segments import ranges_of
from bearlake.compaction.task import run
from bearlake.errors import Corrupt, NotFound
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records import codec
from bearlake.records.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, HEADER_BYTES, Compression
from bearlake.records.codec import Producer, Record
from bearlake.table.schema import ARROW_SCHEMA
from bearlake.wal import reader as wal_reader
from fixtures.compaction_items import Wal, key_of, read_tables, read_whole, served, workbench

TIME_MS = 1_700_000_000_000
ALL_CODECS = list(Compression)


def batch(*values: bytes | None, codec_: Compression = Compression.NONE, time_ms: int = TIME_MS) -> bytes:
    records = [Record(key=b"k", value=value, timestamp=time_ms + at) for at, value in enumerate(values)]
    return codec.encode(records, codec=codec_)


def patched(raw: bytes, at: int, form: str, value: int) -> bytes:
    """The batch with one header field changed, and a CRC to match."""
    changed = bytearray(raw)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, kernel.crc32c(changed, 21))
    return bytes(changed)


def control(time_ms: int = TIME_MS) -> bytes:
    raw = codec.encode([Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0", timestamp=time_ms)])
    return patched(raw, 21, ">h", ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL)


def undecodable() -> bytes:
    return patched(batch(b"one", b"two"), HEADER_BYTES, ">b", 101)


def inexact() -> bytes:
    return codec.encode([Record(value=b"v", headers=(("caf\udce9", b"1"),), timestamp=TIME_MS)])


def covered(result: ItemResult) -> list[tuple[int, int, int]]:
    slices = [piece for written in result.files for piece in written.swap.slices]
    slices += [piece for swap in result.kept_objects for piece in swap.slices]
    return [(partition - key_of(0), start, end) for partition, start, end in ranges_of(slices)]


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def wal(store: MemoryObjectStore) -> Wal:
    return Wal(store)


@pytest.mark.parametrize("compression", ALL_CODECS)
async def test_rows_hold_keys_values_headers_times_and_the_batch_for_every_codec(
    store: MemoryObjectStore, wal: Wal, compression: Compression
) -> None:
    records = [
        Record(key=None, value=b"", timestamp=TIME_MS),
        Record(key=b"", value=None, timestamp=TIME_MS + 5, headers=(("a", None), ("a", b""), ("ä", b"x"))),
        Record(key=b"k", value=b"v" * 1000, timestamp=-1),
    ]
    producer = Producer(id=5, epoch=2, base_sequence=40)
    await wal.put({3: [batch(b"before"), codec.encode(records, codec=compression, producer=producer)]})

    result = await run(wal.item(), store, workbench())

    (table,) = await read_tables(store, result)
    first, *rows = table.to_pylist()
    assert [row["_key"] for row in rows] == [None, b"", b"k"]
    assert [row["_value"] for row in rows] == [b"", None, b"v" * 1000]
    assert [row["_offset"] for row in rows] == [1, 2, 3]
    assert [row["_partition_id"] for row in rows] == [3, 3, 3]
    assert rows[1]["_headers"] == [
        {"key": "a", "value": None},
        {"key": "a", "value": b""},
        {"key": "ä", "value": b"x"},
    ]
    assert rows[0]["_headers"] == []
    assert table["_timestamp"].cast(pa.int64()).to_pylist()[1:] == [TIME_MS * 1000, (TIME_MS + 5) * 1000, -1000]
    assert first["_batch"]["base_offset"] == 0
    assert [row["_batch"] for row in rows] == 3 * [
        {
            "base_offset": 1,
            "attributes": int(compression),
            "producer_id": 5,
            "producer_epoch": 2,
            "base_sequence": 40,
        }
    ]
    assert result.row_count == 4
    assert not result.kept_counts


async def test_log_append_time_is_the_time_of_every_row(store: MemoryObjectStore, wal: Wal) -> None:
    await wal.put({0: [bytes(codec.stamp(batch(b"a", b"b"), TIME_MS + 77))]})

    (table,) = await read_tables(store, await run(wal.item(), store, workbench()))

    assert table["_timestamp"].cast(pa.int64()).to_pylist() == [(TIME_MS + 77) * 1000] * 2
    assert table.to_pylist()[0]["_batch"]["attributes"] == 8


async def test_many_small_partitions_share_a_file_sorted_by_partition_and_offset(
    store: MemoryObjectStore, wal: Wal
) -> None:
    for turn in range(3):
        await wal.put({index: [batch(b"%d-%d" % (index, turn))] for index in range(200)})

    result = await run(wal.item(), store, workbench())

    (written,) = result.files
    (table,) = await read_tables(store, result)
    assert [(row["_partition_id"], row["_offset"]) for row in table.to_pylist()] == [
        (index, offset) for index in range(200) for offset in range(3)
    ]
    assert len(written.swap.slices) == 200
    assert covered(result) == [(index, 0, 3) for index in range(200)]
    assert written.swap.slices[7].position == 21
    assert sum(piece.length for piece in written.swap.slices) == sum(map(len, wal.batches.values()))


async def test_one_huge_partition_becomes_several_files_cut_at_batches(store: MemoryObjectStore, wal: Wal) -> None:
    randomness = random.Random(3)
    for _ in range(12):
        await wal.put({0: [batch(*(randomness.randbytes(500) for _ in range(20))) for _ in range(10)]})

    result = await run(wal.item(row_group_bytes=100_000, file_bytes_max=300_000), store, workbench(window_bytes=50_000))

    assert len(result.files) > 2
    assert covered(result) == [(0, 0, 2400)]
    for written, table in zip(result.files, await read_tables(store, result), strict=True):
        (segment,) = written.swap.slices
        assert segment.base_offset % 20 == 0
        assert segment.position == 0
        assert table["_offset"].to_pylist() == list(range(segment.base_offset, segment.end_offset))
        footer = pq.ParquetFile(pa.BufferReader(await read_whole(store, written.swap.object))).metadata
        groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
        assert all(group.num_rows % 20 == 0 and group.total_byte_size < 120_000 for group in groups)
        assert written.file.split_offsets[0] == 4
        assert len(written.file.split_offsets) == footer.num_row_groups


async def test_a_control_batch_is_a_gap_inside_its_segment(store: MemoryObjectStore, wal: Wal) -> None:
    await wal.put({0: [control(), batch(b"a", b"b"), control(), batch(b"c"), control()], 1: [batch(b"d")]})

    result = await run(wal.item(), store, workbench())

    (written,) = result.files
    assert [(piece.base_offset, piece.end_offset, piece.position) for piece in written.swap.slices] == [
        (0, 6, 0),
        (0, 1, 3),
    ]
    assert written.swap.slices[0].length == wal.slices[0].slice.length
    assert not result.kept_objects
    (table,) = await read_tables(store, result)
    assert table["_offset"].to_pylist() == [1, 2, 4, 0]


async def test_control_batches_without_records_around_them_are_kept(store: MemoryObjectStore, wal: Wal) -> None:
    await wal.put({0: [control()], 1: [batch(b"a")], 2: [control(), control()]})

    result = await run(wal.item(), store, workbench())

    assert covered(result) == [(0, 0, 1), (1, 0, 1), (2, 0, 2)]
    (kept,) = result.kept_objects
    assert [piece[:3] for piece in kept.slices] == [(key_of(0), 0, 1), (key_of(2), 0, 2)]
    assert result.kept_counts == {"lonely_control": 3}


async def test_batches_that_rows_cannot_hold_are_kept_unchanged_and_counted(store: MemoryObjectStore, wal: Wal) -> None:
    broken_zstd = patched(batch(b"x" * 100), 21, ">h", Compression.ZSTD)
    unknown_codec = patched(batch(b"x"), 21, ">h", 6)
    await wal.put(
        {
            0: [batch(b"a"), undecodable(), undecodable(), batch(b"b"), inexact(), batch(b"c", codec_=Compression.LZ4)],
            1: [broken_zstd, batch(b"d", codec_=Compression.GZIP), unknown_codec],
        }
    )

    result = await run(wal.item(), store, workbench())

    assert result.kept_counts == {"undecodable": 4, "inexact": 1}
    assert covered(result) == [(0, 0, 8), (1, 0, 3)]
    found = await served(store, result)
    assert {at for at, content in found.items() if isinstance(content, bytes)} == {
        (0, 1),
        (0, 3),
        (0, 6),
        (1, 0),
        (1, 2),
    }
    assert all(content == wal.batches[at] for at, content in found.items() if isinstance(content, bytes))
    (table,) = await read_tables(store, result)
    assert table["_value"].to_pylist() == [b"a", b"b", b"v", b"c", b"d"]
    (kept,) = result.kept_objects
    assert kept.object.key.startswith("kept/2023111422/")
    assert [entry.batch_count for entry in wal_reader.verify(await read_whole(store, kept.object)).slices] == [3, 2]


async def test_an_item_with_only_undecodable_batches_writes_no_data_file(store: MemoryObjectStore, wal: Wal) -> None:
    await wal.put({0: [undecodable()] * 5})

    result = await run(wal.item(), store, workbench(kept_bytes=100))

    assert not result.files
    assert result.row_count == 0
    assert covered(result) == [(0, 0, 10)]


async def test_a_batch_over_the_limit_when_uncompressed_is_kept(store: MemoryObjectStore, wal: Wal) -> None:
    await wal.put({0: [batch(bytes(100_000), codec_=Compression.ZSTD), batch(b"a")]})

    result = await run(wal.item(), store, workbench(batch_bytes_max=50_000))

    assert result.kept_counts == {"undecodable": 1}
    assert result.row_count == 1


async def test_the_data_file_has_its_columns_and_bounds(store: MemoryObjectStore, wal: Wal) -> None:
    await wal.put({2: [batch(b"a", b"b", None, time_ms=TIME_MS)], 5: [batch(b"c", time_ms=TIME_MS + 9000)]})

    result = await run(wal.item(), store, workbench())

    (written,) = result.files
    file = written.file
    content = await read_whole(store, written.swap.object)
    assert file.key == written.swap.object.key
    assert file.size == len(content)
    assert file.row_count == 4
    assert file.max_timestamp_ms == TIME_MS + 9000
    assert struct.unpack("<i", file.lower_bounds[1]) == (2,)
    assert struct.unpack("<i", file.upper_bounds[1]) == (5,)
    assert struct.unpack("<q", file.upper_bounds[2]) == (2,)
    assert struct.unpack("<q", file.lower_bounds[3]) == (TIME_MS * 1000,)
    assert file.value_counts[6] == 4
    assert set(file.lower_bounds) == set(file.null_value_counts) == {1, 2, 3}
    schema = pq.ParquetFile(pa.BufferReader(content)).schema_arrow
    assert schema.equals(ARROW_SCHEMA)
    assert schema.field("_batch").type.field("base_sequence").metadata == {b"PARQUET:field_id": b"15"}


async def test_every_attempt_writes_under_keys_of_its_own(store: MemoryObjectStore, wal: Wal) -> None:
    await wal.put({0: [batch(b"a"), undecodable()]})

    first = await run(wal.item(), store, workbench(seed=1))
    second = await run(wal.item(), store, workbench(seed=2))

    keys = [written.file.key for result in (first, second) for written in result.files]
    assert len(set(keys)) == 2
    assert all(key.startswith(f"{wal.item().output_prefix}-") and key.endswith(".parquet") for key in keys)
    assert first.kept_objects[0].object.key != second.kept_objects[0].object.key


async def test_a_missing_object_is_not_found_by_its_key(store: MemoryObjectStore, wal: Wal) -> None:
    key = await wal.put({0: [batch(b"a")]})
    await store.delete([key])

    with pytest.raises(NotFound, match=key):
        await run(wal.item(), store, workbench())


async def test_a_changed_byte_is_corrupt_and_names_the_object(store: MemoryObjectStore, wal: Wal) -> None:
    key = await wal.put({0: [batch(b"a" * 100)]})
    content, _ = store._objects[key]  # noqa: SLF001 - the bytes of an object are damaged
    store._objects[key] = (content.replace(b"aaaa", b"abaa", 1), 0)  # noqa: SLF001

    with pytest.raises(Corrupt, match=key):
        await run(wal.item(), store, workbench())


async def test_an_object_that_is_too_short_is_corrupt(store: MemoryObjectStore, wal: Wal) -> None:
    key = await wal.put({0: [batch(b"a" * 100)]})
    content, _ = store._objects[key]  # noqa: SLF001
    store._objects[key] = (content[:120], 0)  # noqa: SLF001

    with pytest.raises(Corrupt, match=key):
        await run(wal.item(), store, workbench())


async def test_offsets_that_contradict_the_batches_are_corrupt(store: MemoryObjectStore, wal: Wal) -> None:
    await wal.put({0: [batch(b"a", b"b")]})
    located = wal.slices[0]
    wal.slices[0] = located._replace(slice=located.slice._replace(record_count=3))

    with pytest.raises(Corrupt, match="2 offsets, not 3"):
        await run(wal.item(), store, workbench())


class _Tracked(bytearray):
    """A buffer that can be watched until it is freed."""


class _WatchedStore(MemoryObjectStore):
    """Counts the bytes of views that callers still hold, and reads."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.held_max = self.reads = 0

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        views = []
        self.reads += 1
        for view in await super().read(key, ranges):
            buffer = _Tracked(view)
            self.held += len(buffer)
            self.held_max = max(self.held, self.held_max)
            weakref.finalize(buffer, self._release, len(buffer))
            views.append(memoryview(buffer))
        return views

    def _release(self, size: int) -> None:
        self.held -= size


async def test_no_more_than_two_windows_are_in_memory_whatever_the_size_of_the_item() -> None:
    store = _WatchedStore()
    wal = Wal(store)
    for _ in range(20):
        await wal.put({index: [batch(bytes(1000)), batch(bytes(1000))] for index in range(30)})
    total = sum(located.slice.length for located in wal.slices)

    await run(wal.item(), store, workbench(window_bytes=100_000))

    assert total > 6 * 200_000
    assert 100_000 < store.held_max <= 200_000
    assert store.held == 0


async def test_an_item_that_fits_into_a_window_reads_each_object_once() -> None:
    store = _WatchedStore()
    wal = Wal(store)
    for _ in range(5):
        await wal.put({index: [batch(b"a")] for index in range(30)})

    await run(wal.item(), store, workbench())

    assert store.reads == 5
