"""Pages that no honest engine writes: they take little memory, or are refused with a reason."""

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.errors import BearlakeError, Corrupt, Invalid
from bearlake.objects import ByteRange
from bearlake.table import file_end
from bearlake.table.column_costs import Cost, _Parts
from bearlake.table.compact_protocol import Malformed
from bearlake.table.delta_integers import sum_of
from bearlake.table.file_budget import FileBudget
from bearlake.table.page_headers import pages
from bearlake.table.row_slices import slices
from bearlake.table.sparse import SparseFile
from fixtures import parquet_by_hand as by_hand
from fixtures.parquet_by_hand import (
    DELTA_BYTE_ARRAY,
    DELTA_LENGTH_BYTE_ARRAY,
    FIXED,
    INT32,
    PLAIN,
    RLE_DICTIONARY,
    UNCOMPRESSED,
    dictionary,
    fields_of,
    file_of,
    header,
    i32,
    i64,
    list_levels,
    page,
    run,
    texts,
    zeros,
)

KIB = 1024
MIB = 1024 * KIB
LIMIT = 16 * MIB
NUMBER = (7).to_bytes(4, "little")


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow allocates."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def read(content: bytes, bytes_max: int = LIMIT) -> Iterator[pa.Table]:
    """The slices of the file's only row group."""
    found = file_end.read_foreign(memoryview(content))
    file = SparseFile(len(content), [ByteRange(0, len(content))], [memoryview(content)])
    return slices(file, found, 0, None, bytes_max, FileBudget(len(content)))


def lists_of_a_long_text(own: list[tuple[int, by_hand.Value]]) -> bytes:
    """2,000 lists with a text of 100 KiB, which is in the dictionary once. `own`: the fields of the page's header.

    A page without indices follows, so that Arrow cannot leave the indices as they are.
    """
    first = dictionary(texts(b"v" * 100 * KIB), 1)
    content = list_levels(2_000) + b"\1" + run(2_000, 0)
    packed = by_hand.compressed(content)
    pages = first + header(len(content), len(packed), *own) + packed + page(list_levels(1) + texts(b"p"), 1, PLAIN)
    return file_of(pages, 2_001, 2_001, is_list=True, dictionary_bytes=len(first))


def indexed(value: bytes, count: int, **options: int) -> bytes:
    """A value many times, by an index of no bits."""
    first = dictionary(value, 1)
    return file_of(
        first + page(b"\1" + run(count, 0), count, RLE_DICTIONARY), count, count, dictionary_bytes=len(first), **options
    )


def with_a_false_size(content: bytes, count: int) -> bytes:
    packed = by_hand.compressed(content)
    own = by_hand.struct(*fields_of(count, PLAIN))
    head = by_hand.struct((1, i32(0)), (2, i32(len(content))), (2, i64(10)), (3, i32(len(packed))), (5, own)).content
    return file_of(head + packed, count, count)


LONG = [
    pytest.param(
        lambda: lists_of_a_long_text(
            [(1, i32(2_000)), (2, i32(RLE_DICTIONARY)), (2, i64(PLAIN)), *fields_of(0, 0)[2:]]
        ),
        id="an-encoding-twice-of-which-thrift-skips-one",
    ),
    pytest.param(
        lambda: lists_of_a_long_text(
            [(1, i32(2_000)), (2, i32(PLAIN)), (2 + 2**16, i32(RLE_DICTIONARY)), *fields_of(0, 0)[2:]]
        ),
        id="a-field-number-that-thrift-cuts-to-16-bits",
    ),
    pytest.param(
        lambda: lists_of_a_long_text(fields_of(2_000, RLE_DICTIONARY + 2**32)),
        id="an-encoding-that-thrift-cuts-to-32-bits",
    ),
    pytest.param(lambda: with_a_false_size(texts(b"x" * 64 * KIB) * 2_000, 2_000), id="a-size-twice"),
    pytest.param(
        lambda: file_of(
            header(0, len(found := texts(b"x" * 64 * KIB) * 1_000), *fields_of(1_000, PLAIN)) + found,
            1_000,
            1_000,
            codec=UNCOMPRESSED,
        ),
        id="a-page-that-is-not-compressed-and-says-that-it-is-empty",
    ),
    pytest.param(
        lambda: file_of(page(zeros(20_000_000), 20_000_000, DELTA_LENGTH_BYTE_ARRAY), 20_000_000, 20_000_000),
        id="lengths-of-empty-texts",
    ),
    pytest.param(
        lambda: file_of(page(2 * zeros(10_000_000), 10_000_000, DELTA_BYTE_ARRAY), 10_000_000, 10_000_000),
        id="lengths-and-prefixes-of-empty-texts",
    ),
    pytest.param(lambda: indexed(b"\1", 4_000_000, kind=FIXED, precision=2), id="short-decimals"),
    pytest.param(lambda: indexed(NUMBER, 4_000_000, kind=INT32, precision=2), id="decimals-in-integers"),
    pytest.param(
        lambda: file_of(
            (first := dictionary(bytes(4 * 1_000_000), 1_000_000)) + page(b"\1" + run(9, 0), 9, RLE_DICTIONARY),
            9,
            9,
            dictionary_bytes=len(first),
        ),
        id="a-dictionary-of-empty-texts",
    ),
]


@pytest.mark.parametrize("content", LONG)
def test_a_file_that_stands_for_many_bytes_takes_little_memory_or_is_refused(
    pool: pa.MemoryPool, content: Callable[[], bytes]
) -> None:
    found = content()
    count = pq.read_metadata(pa.BufferReader(found)).num_rows
    before = pool.bytes_allocated()
    seen = 0

    try:
        for part in read(found):
            seen += part.num_rows
        assert seen == count
    except BearlakeError as error:
        assert "row group 0" in str(error)  # noqa: PT017 - to be refused, and to be read, are both right
    assert pool.max_memory() - before < 2 * LIMIT


@pytest.mark.parametrize("row_count", [2, 2**31, 2**45])
@pytest.mark.parametrize("is_list", [False, True])
def test_a_row_group_that_claims_more_rows_than_it_has_is_refused(row_count: int, is_list: bool) -> None:
    content = (list_levels(1) if is_list else b"") + texts(b"x")

    with pytest.raises(Corrupt, match=r"the column a.* has pages that cannot be read: 1 values are fewer than"):
        list(read(file_of(page(content, 1, PLAIN), 1, row_count, is_list=is_list)))


def test_lists_that_claim_more_rows_than_their_levels_have_are_refused() -> None:
    levels = by_hand.levels(run(1, 0) + run(4, 1)) + by_hand.levels(run(5, 3))

    with pytest.raises(Corrupt, match="its levels have 1 rows, not 5"):
        list(read(file_of(page(levels + texts(*[b"x"] * 5), 5, PLAIN), 5, 5, is_list=True)))


def test_a_column_whose_writer_says_that_its_dictionary_is_at_0_has_none() -> None:
    content = file_of(page(texts(b"x", b"y"), 2, PLAIN), 2, 2, dictionary_bytes=0)

    assert pa.concat_tables(read(content))["a"].to_pylist() == [b"x", b"y"]


@pytest.mark.parametrize("is_list", [False, True])
def test_pages_without_values_are_passed(is_list: bool) -> None:
    def filled(count: int) -> bytes:
        return page((list_levels(count) if is_list else b"") + texts(*[b"x"] * count), count, PLAIN)

    content = file_of(filled(2) + filled(0) + filled(1), 3, 3, is_list=is_list)

    assert pa.concat_tables(read(content))["a"].to_pylist() == ([[b"x"]] * 3 if is_list else [b"x"] * 3)


def test_a_dictionary_that_claims_more_values_than_it_has_bytes_is_refused() -> None:
    first = dictionary(texts(b"x"), 2**31 - 1)
    content = file_of(first + page(b"\1" + run(1, 0), 1, RLE_DICTIONARY), 1, 1, dictionary_bytes=len(first))

    with pytest.raises(Corrupt, match="a dictionary has more values than bytes"):
        list(read(content))


def test_a_row_group_of_more_pages_than_engines_write_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bearlake.table.decoding_plan._PAGES_MAX", 99)
    small = page(texts(b"x"), 1, PLAIN)

    assert pa.concat_tables(read(file_of(99 * small, 99, 99))).num_rows == 99
    with pytest.raises(Corrupt, match="more pages than any engine writes"):
        list(read(file_of(100 * small, 100, 100)))


def test_many_pages_are_joined_and_their_cost_is_not_less() -> None:
    parts = _Parts()
    for at in range(20_000):
        parts.add(2 * at, 2 * at + 1, 100)
    cost = Cost(path="a", once=0, parts=parts.end(), page_count=0, is_indexed=False)

    assert len(cost.parts) <= 8_192
    assert (cost.parts[0].first, cost.parts[-1].last) == (0, 39_999)
    assert sum(part.size for part in cost.parts) == 2_000_000
    assert cost.of(40_000) == 2_000_000
    assert 50_000 <= cost.of(1_000) <= 52_000


def prefixed(count: int, *, is_list: bool) -> tuple[pa.Table, bytes]:
    """Texts that begin like the ones before them, and a file of them in DELTA_BYTE_ARRAY, in large pages."""
    found = [b"the same beginning of some length %09d" % (at // 3) for at in range(count)]
    rows = pa.table({"a": pa.array([[text, text + b"!"] for text in found] if is_list else found)})
    sink = pa.BufferOutputStream()
    encoding = {"a.list.element" if is_list else "a": "DELTA_BYTE_ARRAY"}
    pq.write_table(rows, sink, use_dictionary=False, column_encoding=encoding, store_schema=False, compression="zstd")
    return rows, sink.getvalue().to_pybytes()


@pytest.mark.parametrize("is_list", [False, True])
def test_texts_in_deltas_are_read_in_few_slices_also_inside_of_lists(pool: pa.MemoryPool, is_list: bool) -> None:
    rows, content = prefixed(30_000, is_list=is_list)
    before = pool.bytes_allocated()

    parts = list(read(content))

    assert pa.concat_tables(parts)["a"].equals(rows["a"])
    assert len(parts) <= 8
    assert pool.max_memory() - before < 2 * LIMIT


def test_texts_in_deltas_of_a_row_that_take_too_much_are_refused() -> None:
    rows = pa.table({"a": pa.array([[b"x" * 100 * KIB] * 300])})
    sink = pa.BufferOutputStream()
    encoding = {"a.list.element": "DELTA_BYTE_ARRAY"}
    pq.write_table(rows, sink, use_dictionary=False, column_encoding=encoding, store_schema=False, compression="zstd")

    with pytest.raises(Invalid, match=r"in the column a\.list\.element; the limit is compaction\.task\.current_bytes"):
        list(read(sink.getvalue().to_pybytes()))


@pytest.mark.parametrize("count", [1, 2, 33, 129, 1_000])
@pytest.mark.parametrize("largest", [0, 1, 300, 2**31 - 1])
def test_lengths_in_deltas_add_up(count: int, largest: int) -> None:
    source = random.Random(count)
    lengths = [source.randint(0, largest) for _ in range(count)]
    rows = pa.table([lengths], schema=pa.schema([pa.field("a", pa.int32(), nullable=False)]))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, use_dictionary=False, column_encoding="DELTA_BINARY_PACKED", compression="none")
    chunk = memoryview(sink.getvalue()).cast("B")[4:]
    (found,) = pages(chunk, count)
    content = chunk[found.start : found.end]

    assert sum_of(content, 0, count, FileBudget(0)) == (sum(lengths), len(content))
    with pytest.raises((IndexError, Malformed)):
        sum_of(content, 0, count - 1, FileBudget(0))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x01\x04\x02\x00" + b"\x01" + bytes(4), id="a-negative-length"),
        pytest.param(b"\x80\x01\x04\x03\xfe\xff\xff\xff\x0f" + b"\x02" + bytes(4), id="a-length-that-arrow-wraps"),
        pytest.param(b"\x80\x01\x00\x02\x00" + bytes(9), id="no-miniblocks"),
        pytest.param(b"\x80\x01\x04\x02\x00\x00\x40" + bytes(3), id="deltas-that-are-too-wide"),
        pytest.param(b"\x80\x01\x04\x02\x00\x00\x08" + bytes(3), id="deltas-that-are-not-there"),
    ],
)
def test_impossible_lengths_are_refused(content: bytes) -> None:
    with pytest.raises((IndexError, Malformed)):
        sum_of(memoryview(content), 0, 10, FileBudget(0))


def test_the_lengths_of_a_huge_miniblock_take_time_that_grows_with_their_number() -> None:
    """A file names the size of its blocks. Taken as one number, this miniblock would take minutes."""
    count = 1 << 22
    head = by_hand.varint(count) + by_hand.varint(1) + by_hand.varint(count + 1) + by_hand.varint(0)
    content = head + by_hand.varint(0) + b"\x01" + b"\xaa" * (count // 8)
    deltas = [0, 1] * (count // 2)
    lengths, length = 0, 0
    for delta in deltas:
        length += delta
        lengths += length

    assert sum_of(memoryview(content), 0, count + 1, FileBudget(4 * count)) == (lengths, len(content))
