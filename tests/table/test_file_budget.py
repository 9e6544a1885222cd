"""Files whose few bytes stand for much work, or for memory that headers do not tell: read with little of both, or refused."""

import base64
import tracemalloc
import zlib
from array import array
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.errors import BearlakeError, Corrupt, Invalid
from bearlake.objects import ByteRange
from bearlake.table import file_budget, file_end
from bearlake.table.current_rows import parse_file
from bearlake.table.current_state import REMEMBERED_SCHEMA, decode_remembered, encode_remembered
from bearlake.table.file_budget import FileBudget
from bearlake.table.row_slices import slices
from bearlake.table.sparse import SparseFile
from fixtures.parquet_by_hand import (
    DELTA_BYTE_ARRAY,
    FIXED,
    INT32,
    PLAIN,
    RLE_DICTIONARY,
    Value,
    compressed,
    dictionary,
    fields_of,
    file_of,
    i32,
    i64,
    levels,
    page,
    run,
    struct,
    texts,
    varint,
)

KIB = 1024
MIB = 1024 * KIB
LIMIT = 16 * MIB


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow allocates."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def read(content: bytes, bytes_max: int = LIMIT, names: list[str] | None = None) -> Iterator[pa.Table]:
    """The slices of the file's only row group."""
    found = file_end.read_foreign(memoryview(content))
    file = SparseFile(len(content), [ByteRange(0, len(content))], [memoryview(content)])
    return slices(file, found, 0, names, bytes_max, FileBudget(len(content)))


def deltas(count: int) -> bytes:
    """Lengths in DELTA_BINARY_PACKED that alternate between 0 and 1, in one miniblock."""
    width = -(-(count - 1) // 128) * 128
    return varint(width) + varint(1) + varint(count) + b"\0" + b"\1" + b"\2" + b"\x22" * (width // 4)


def runs(count: int) -> bytes:
    """Lists of one text each, whose repetition levels are runs of one level each."""
    return levels(run(1, 0) * count) + levels(run(count, 3)) + texts(b"") * count


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(
            lambda: file_of(500 * page(runs(400_000), 400_000, PLAIN), 500 * 400_000, 500 * 400_000, is_list=True),
            id="runs-of-one-level",
        ),
        pytest.param(
            lambda: file_of(500 * page(2 * deltas(400_000), 400_000, DELTA_BYTE_ARRAY), 500 * 400_000, 500 * 400_000),
            id="lengths",
        ),
    ],
)
def test_few_bytes_that_stand_for_hundreds_of_millions_of_steps_are_not_walked_through(
    pool: pa.MemoryPool, content: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_budget, "_STEPS", 100_000)
    found = content()
    assert len(found) < MIB

    with pytest.raises(BearlakeError, match=r"the limit is compaction\.task\.current_bytes"):
        list(read(found))
    assert pool.max_memory() < 2 * LIMIT


def test_runs_without_levels_are_damage() -> None:
    content = levels(b"\0\0" * (4 * MIB) + run(1, 0)) + levels(run(1, 3)) + texts(b"x")

    with pytest.raises(Corrupt, match="its levels are damaged"):
        list(read(file_of(page(content, 1, PLAIN), 1, 1, is_list=True)))


def test_headers_with_more_fields_than_parquet_has_are_refused() -> None:
    many = struct(*fields_of(1, PLAIN), *[(99, i64(0))] * 100_000)
    content = struct((1, i32(0)), (2, i32(5)), (3, i32(14)), (5, many)).content + compressed(texts(b"x"))

    with pytest.raises(Corrupt, match="a header is damaged, or of an unknown kind"):
        list(read(file_of(content, 1, 1)))


def test_rows_that_take_little_memory_one_after_the_other_are_refused_if_they_are_endless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_budget, "_BYTES", 256 * MIB)
    first = dictionary((7).to_bytes(4, "little"), 1)
    content = first + 2_000 * page(b"\1" + run(1_000_000, 0), 1_000_000, RLE_DICTIONARY)
    count = 2_000 * 1_000_000

    with pytest.raises(Invalid, match=r"row group 0: its pages become \d+ bytes of memory, one after the other"):
        list(read(file_of(content, count, count, kind=INT32, dictionary_bytes=len(first))))


def test_pages_whose_content_has_no_values_are_refused_if_they_are_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_budget, "_BYTES", 256 * MIB)
    content = 2_000 * page(bytes(8 * MIB), 0, PLAIN) + page(texts(b"x"), 1, PLAIN)

    with pytest.raises(Invalid, match="its pages become"):
        list(read(file_of(content, 1, 1)))


def test_columns_of_the_same_name_take_little_memory(pool: pa.MemoryPool) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int32()), pa.array([b"v" * MIB]))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays([text, text], names=["a", "a"]), sink, store_schema=False, compression="zstd")
    before = pool.bytes_allocated()
    seen = 0

    for part in read(sink.getvalue().to_pybytes()):
        seen += part.num_rows

    assert seen == 500
    assert pool.max_memory() - before < 3 * LIMIT


def test_a_column_chunk_with_another_path_than_its_column_takes_little_memory(pool: pa.MemoryPool) -> None:
    first = dictionary(texts(b"v" * MIB), 1)
    content = file_of(first + page(b"\1" + run(500, 0), 500, RLE_DICTIONARY), 500, 500, dictionary_bytes=len(first))
    path = b"\x19\xf8\1\1a"  # the third field of a chunk's metadata: a list of one text
    at = content.rindex(path)
    lying = content[: at + len(path) - 1] + b"b" + content[at + len(path) :]
    before = pool.bytes_allocated()

    assert sum(part.num_rows for part in read(lying)) == 500
    assert pool.max_memory() - before < 3 * LIMIT


def test_columns_are_chosen_as_arrow_does_also_if_their_names_have_dots(pool: pa.MemoryPool) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), pa.array([b"v" * KIB]))
    sink = pa.BufferOutputStream()
    rows = pa.table({"a.b": text, "c": pa.nulls(50_000, pa.int8())})
    pq.write_table(rows, sink, store_schema=False, compression="zstd")
    before = pool.bytes_allocated()
    seen = 0

    for part in read(sink.getvalue().to_pybytes(), names=["a.b"]):
        assert part.column_names == ["a.b"]
        seen += part.num_rows

    assert seen == 50_000
    assert pool.max_memory() - before < 2 * LIMIT


def footer_of(*elements: bytes, rest: bytes = b"") -> bytes:
    """A file with a footer alone. `rest`: its fields behind the schema."""
    schema = bytes([0x15, 2, 0x19, 0xFC]) + varint(len(elements)) + b"".join(elements)
    found = schema + b"\x16\0\x19\x0c" + rest + b"\0"
    return b"PAR1" + found + len(found).to_bytes(4, "little") + b"PAR1"


def group_of(name: bytes, children: int) -> bytes:
    return struct((4, Value(8, varint(len(name)) + name)), (5, i32(children))).content


LEAF = struct((1, i32(FIXED)), (2, i32(1)), (3, i32(0)), (4, Value(8, b"\1a"))).content


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(
            lambda: footer_of(group_of(b"r", 1), group_of(b"g" * 30_000, 3_000), *[LEAF] * 3_000),
            id="a-long-name-of-many-columns",
        ),
        pytest.param(
            lambda: footer_of(group_of(b"r", 1), *[group_of(b"g" * 5_000, 1)] * 190, LEAF),
            id="long-names-in-each-other",
        ),
        pytest.param(lambda: footer_of(group_of(b"r", 40_000), *[LEAF] * 40_000), id="tiny-columns"),
        pytest.param(
            lambda: footer_of(group_of(b"r", 1), LEAF, rest=b"\x19\xfc" + varint(500_000) + b"\x18\0\0" * 500_000),
            id="tiny-metadata",
        ),
    ],
)
def test_a_footer_whose_few_bytes_become_many_is_refused(content: Callable[[], bytes]) -> None:
    found = content()
    tracemalloc.start()

    try:
        with pytest.raises(Corrupt, match=r"its \d+ bytes become \d+ bytes of memory"):
            file_end.read_foreign(memoryview(found))
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB + 10 * len(found)
    finally:
        tracemalloc.stop()


def test_footers_of_wide_and_of_deep_tables_are_read() -> None:
    deep: pa.DataType = pa.int64()
    for at in range(40):
        deep = pa.struct([pa.field(f"level_{at}", deep), pa.field("leaf", pa.string())])
    wide = pa.schema([pa.field(f"a_column_with_a_name_{at}", pa.int64()) for at in range(5_000)])
    for schema in (wide, pa.schema([pa.field(f"c{at}", deep) for at in range(20)])):
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, schema) as writer:
            for _ in range(3):
                writer.write_table(schema.empty_table())

        assert len(file_end.read_foreign(memoryview(sink.getvalue().to_pybytes())).schema.to_arrow_schema()) == len(
            schema
        )


class CountingMetadata:
    """A footer that counts how often it is asked for a row group."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self._metadata = metadata
        self.asked_count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._metadata, name)

    def row_group(self, at: int) -> pq.RowGroupMetaData:
        self.asked_count += 1
        return self._metadata.row_group(at)


def test_the_crcs_of_a_row_group_are_found_without_a_look_at_those_before_it() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": range(200)}), sink, row_group_size=1)
    content = memoryview(sink.getvalue())
    metadata = CountingMetadata(pq.read_metadata(pa.BufferReader(content)))
    file = SparseFile(len(content), [], [])

    file_end.check_chunks(file, metadata, array("I", [0] * 200), 199)  # type: ignore[arg-type]

    assert metadata.asked_count < 5


def test_ranges_of_a_file_are_found_whichever_order_they_came_in() -> None:
    content = bytes(range(100))
    ranges = [ByteRange(50, 60), ByteRange(0, 10), ByteRange(20, 30)]
    file = SparseFile(100, ranges, [memoryview(content)[start:end] for start, end in ranges])

    for start, end in [(0, 10), (3, 4), (20, 30), (55, 60)]:
        assert file.loaded(ByteRange(start, end)) == content[start:end]
        file.seek(start)
        assert file.read(end - start) == content[start:end]
    for start, end in [(0, 11), (10, 20), (15, 25), (60, 61)]:
        assert file.loaded(ByteRange(start, end)) is None
        file.seek(start)
        with pytest.raises(OSError, match="were not loaded"):
            file.read(end - start)


def test_column_chunks_that_share_bytes_are_damage() -> None:
    own = file_of(page(texts(b"x"), 1, PLAIN), 1, 1)

    with pytest.raises(Corrupt, match="its column chunks have more bytes than the file"):
        parse_file(memoryview(own), len(own) // 8)


def test_what_a_file_remembers_must_not_expand_behind_its_limit() -> None:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    rows = pa.table([pa.nulls(2_000_000, field.type) for field in REMEMBERED_SCHEMA], schema=REMEMBERED_SCHEMA)
    with pa.ipc.new_stream(sink, REMEMBERED_SCHEMA, options=options) as writer:
        writer.write_table(rows)
    text = base64.b64encode(zlib.compress(sink.getvalue()))
    assert 1_000 * len(text) < rows.nbytes

    with pytest.raises(Corrupt, match="compressed twice"):
        decode_remembered(text)
    own = rows.slice(0, 3).combine_chunks()
    assert decode_remembered(encode_remembered(own).encode()).num_rows == 3
