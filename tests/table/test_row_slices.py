"""Row groups of other engines' files in slices: the same rows as Arrow reads at once, in bounded memory."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.errors import BearlakeError, Corrupt, Invalid
from bearlake.objects import ByteRange
from bearlake.table.file_budget import FileBudget
from bearlake.table.repetition_levels import row_starts
from bearlake.table.row_slices import slices
from bearlake.table.sparse import SparseFile

KIB = 1024
MIB = 1024 * KIB


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow allocates."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def written(rows: pa.Table, **options: Any) -> bytes:
    """A file with one row group."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=max(1, rows.num_rows), **{"store_schema": False, **options})
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read(content: bytes, bytes_max: int, names: list[str] | None = None) -> Iterator[pa.Table]:
    """The slices of the file's only row group."""
    file = SparseFile(len(content), [ByteRange(0, len(content))], [memoryview(content)])
    return slices(file, pq.read_metadata(pa.BufferReader(content)), 0, names, bytes_max, FileBudget(len(content)))


def repeated(text: bytes, count: int) -> pa.Array:
    """The same text many times, as an index."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


def random_rows(source: random.Random, count: int) -> pa.Table:
    """Rows of nested and flat columns, whose texts repeat or not."""

    def text() -> bytes:
        return source.choice([b"", b"one", b"another text" * 5, source.randbytes(source.randrange(40))])

    def maybe(value: Any) -> Any:
        return None if source.random() < 0.2 else value

    def listed(make: Any) -> list[Any]:
        return [make() for _ in range(source.choice([0, 0, 1, 3, 20]))]

    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    columns = {
        "number": pa.array([maybe(source.randrange(5)) for _ in range(count)], pa.int64()),
        "flag": pa.array([maybe(source.random() < 0.5) for _ in range(count)], pa.bool_()),
        "text": pa.array([maybe(text()) for _ in range(count)], pa.binary()),
        "fixed": pa.array([maybe(source.randbytes(1) * 16) for _ in range(count)], pa.binary(16)),
        "price": pa.array([maybe(source.randrange(99)) for _ in range(count)]).cast(pa.decimal128(30, 2)),
        "texts": pa.array([maybe(listed(lambda: maybe(text()))) for _ in range(count)], pa.list_(pa.binary())),
        "numbers": pa.array([maybe(listed(lambda: 1)) for _ in range(count)], pa.list_(pa.int32())),
        "pairs": pa.array(
            [maybe(listed(lambda: {"key": "k", "value": maybe(text())})) for _ in range(count)], pa.list_(pair)
        ),
        "deep": pa.array([maybe(listed(lambda: listed(text))) for _ in range(count)], pa.list_(pa.list_(pa.binary()))),
        "inner": pa.array([maybe({"key": maybe("k"), "value": text()}) for _ in range(count)], pair),
        "map": pa.array([maybe([(text(), maybe(text()))]) for _ in range(count)], pa.map_(pa.binary(), pa.binary())),
    }
    return pa.table(columns)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_slices_are_the_rows_that_arrow_reads_at_once(seed: int, version: str) -> None:
    source = random.Random(seed)
    rows = random_rows(source, source.choice([1, 7, 300, 2_000]))
    variants: list[dict[str, Any]] = [
        {"use_dictionary": True},
        {
            "use_dictionary": True,
            "dictionary_pagesize_limit": 300,
            "write_batch_size": 16,
        },  # only the first pages have indices
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}},
        {"use_dictionary": False, "compression": "none"},
        *({"compression": codec} for codec in ("snappy", "gzip", "brotli", "lz4", "zstd")),
    ]
    for options in variants:
        content = written(rows, data_page_version=version, data_page_size=2 * KIB, **options)
        expected = pq.read_table(pa.BufferReader(content))
        for bytes_max in (4 * MIB, 100 * MIB):
            found = list(read(content, bytes_max))

            assert pa.concat_tables(found) == expected
            assert all(part.nbytes <= bytes_max / 4 or part.num_rows == 1 for part in found)
            assert pa.concat_tables(read(content, bytes_max, ["text", "pairs"])) == expected.select(["text", "pairs"])


def test_no_rows_are_no_slices() -> None:
    assert list(read(written(pa.table({"a": pa.array([], pa.int64())})), MIB)) == []


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(lambda: repeated(b"v" * MIB, 1_000), id="a-text-by-index"),
        pytest.param(lambda: pa.nulls(4_000_000, pa.int64()), id="nulls"),
        pytest.param(lambda: pa.repeat(pa.scalar(7), 4_000_000), id="a-repeated-number"),
        pytest.param(
            lambda: pa.repeat(pa.scalar(b"f" * KIB, pa.binary(KIB)), 50_000), id="a-repeated-text-of-fixed-size"
        ),
        pytest.param(lambda: pa.array([b"p" * 50_000] * 1_000), id="texts-in-pages"),
        pytest.param(
            lambda: pa.ListArray.from_arrays(pa.array(range(1_001), pa.int32()), repeated(b"v" * MIB, 1_000)),
            id="texts-by-index-in-lists",
        ),
    ],
)
def test_a_small_file_of_many_bytes_takes_little_memory(pool: pa.MemoryPool, column: Any) -> None:
    rows = pa.table({"a": column()})
    content = written(rows, compression="zstd", use_dictionary=["a"] if rows.num_rows > 1_000 else True)
    count = rows.num_rows
    del rows
    assert len(content) < 100 * KIB
    before = pool.bytes_allocated()
    seen = most = 0

    for part in read(content, 16 * MIB):
        seen += part.num_rows
        most = max(most, pool.bytes_allocated() - before)

    assert seen == count
    assert most < 2 * 16 * MIB


@pytest.mark.parametrize(
    ("column", "named"),
    [
        pytest.param(lambda: pa.array([b"p" * (64 * MIB)]), "a", id="a-page"),
        pytest.param(lambda: pa.array([[b"p" * (64 * MIB)]]), "a.list.element", id="a-page-in-a-list"),
        pytest.param(lambda: pa.array([[7] * 8_000_000]), "a.list.element", id="a-list"),
        pytest.param(
            lambda: pa.ListArray.from_arrays(pa.array([0, 100], pa.int32()), repeated(b"v" * MIB, 100)),
            "a",
            id="a-list-of-texts-by-index",
        ),
    ],
)
def test_a_row_that_takes_too_much_is_refused_with_its_column_and_the_setting(
    pool: pa.MemoryPool, column: Any, named: str
) -> None:
    content = written(pa.table({"a": column(), "b": pa.array([1])}), compression="zstd")
    before = pool.max_memory()

    with pytest.raises(
        Invalid, match=rf"group 0: .* in the column {named}; .*compaction\.task\.current_bytes, 16777216 bytes"
    ):
        list(read(content, 16 * MIB))
    assert pool.max_memory() < before + 16 * MIB


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_row_that_goes_on_over_many_pages_counts_as_a_whole(version: str) -> None:
    rows = pa.table({"a": pa.array([[1], list(range(1_000_000)), [2]])})
    content = written(rows, data_page_size=KIB, write_batch_size=100, use_dictionary=False, data_page_version=version)

    assert pa.concat_tables(read(content, 32 * MIB))["a"] == rows["a"]
    with pytest.raises(Invalid, match=r"in the column a\.list\.element"):
        list(read(content, 8 * MIB))


@pytest.mark.parametrize("bit_count", [1, 2, 3])
@pytest.mark.parametrize("run", [1, 8, 500, 513, 5_000])
def test_rows_begin_where_levels_are_0(bit_count: int, run: int) -> None:
    source = random.Random(run)
    levels = [source.randrange(1 << bit_count) for _ in range(run)]
    padded = levels + [0] * (-run % 8)
    packed = sum(level << at * bit_count for at, level in enumerate(padded)).to_bytes(
        len(padded) * bit_count // 8, "little"
    )
    head = len(padded) // 8 << 1 | 1
    varint = bytes([head]) if head < 128 else bytes([head & 127 | 128, head >> 7])
    repeated_run = bytes([3 << 1, 0])  # three levels of 0

    found = row_starts(memoryview(varint + packed), run, bit_count, FileBudget(0))
    assert found == (levels[0] == 0, levels.count(0))
    assert row_starts(memoryview(repeated_run + varint + packed), 3 + len(padded), bit_count, FileBudget(0)) == (
        True,
        3 + padded.count(0),
    )
    with pytest.raises(IndexError):
        row_starts(memoryview(varint + packed[:-1]), run, bit_count, FileBudget(0))
    with pytest.raises(IndexError):
        row_starts(memoryview(repeated_run), 4, bit_count, FileBudget(0))


def test_pages_that_arrow_would_trust_are_read_first() -> None:
    content = bytearray(written(pa.table({"a": pa.array([1, 2])}), use_dictionary=False))
    content[4] = 0xFF  # the first byte of the first page's header

    with pytest.raises(Corrupt, match="group 0: the column a has pages"):
        list(read(bytes(content), MIB))


def test_damage_of_any_byte_is_an_error_or_goes_unnoticed() -> None:
    source = random.Random(3)
    content = written(random_rows(source, 60))
    metadata = pq.read_metadata(pa.BufferReader(content))
    for _ in range(400):
        damaged = bytearray(content)
        damaged[source.randrange(4, len(content) - 3_000)] ^= 1 << source.randrange(8)
        file = SparseFile(len(content), [ByteRange(0, len(content))], [memoryview(damaged)])
        try:
            list(slices(file, metadata, 0, None, MIB, FileBudget(len(content))))
        except (BearlakeError, pa.ArrowException, OSError, ValueError):
            continue
