"""Batches to columns: content, errors, and that a batch gets all its rows or none."""

from types import ModuleType
from typing import Any

import pytest

from bearlake.kernel import DecodeStatus
from bearlake.records import compression
from bearlake.records.batch import Compression
from bearlake.records.codec import Producer, Record, encode
from fixtures.columns import batch, record, rows, zigzag

MAX = 2**63 - 1
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999


def decode(kernel: ModuleType, data: bytes, base: int = 0, bodies: Any = ()) -> tuple[int, DecodeStatus, list[Any]]:
    builder = kernel.ColumnBuilder()
    position, status = builder.append(0, base, data, 0, len(data), bodies)
    return position, status, rows(builder.take())


def test_every_field_of_a_record_and_its_batch_is_kept(kernel: ModuleType) -> None:
    records = [
        Record(key=b"k", value=b"v", timestamp=1000, headers=(("b", b"1"), ("a", None), ("b", b""), ("", b"2"))),
        Record(key=b"", value=None, timestamp=-1),
        Record(key=None, value=b"", timestamp=999, headers=(("größe", b"\xff"),)),
    ]
    producer = Producer(id=2**40, epoch=7, base_sequence=2**30, is_transactional=True)
    data = encode(records, producer=producer)

    position, status, found = decode(kernel, data, 2**50)

    assert (position, status) == (len(data), DecodeStatus.OK)
    assert isinstance(status, DecodeStatus)
    assert [(row["offset"], row["timestamp"], row["key"], row["value"]) for row in found] == [
        (2**50, 1_000_000, b"k", b"v"),
        (2**50 + 1, -1000, b"", None),
        (2**50 + 2, 999_000, None, b""),
    ]
    assert [row["headers"] for row in found] == [
        [(b"b", b"1"), (b"a", None), (b"b", b""), (b"", b"2")],
        [],
        [("größe".encode(), b"\xff")],
    ]
    of_batch = ("partition_id", "base_offset", "attributes", "producer_id", "producer_epoch", "base_sequence")
    assert {tuple(row[name] for name in of_batch) for row in found} == {(0, 2**50, 0x10, 2**40, 7, 2**30)}


def test_offsets_continue_across_batches_and_partitions_are_adjacent(kernel: ModuleType) -> None:
    data = encode([Record(value=b"a"), Record(value=b"b")]) + encode([Record(value=b"c")])
    builder = kernel.ColumnBuilder()

    builder.append(3, 10, b"xx" + data + b"x", 2, 2 + len(data), [])
    builder.append(1, 500, memoryview(data), 0, len(data), ())
    found = rows(builder.take())

    assert [(row["partition_id"], row["base_offset"], row["offset"], row["value"]) for row in found] == [
        (3, 10, 10, b"a"), (3, 10, 11, b"b"), (3, 12, 12, b"c"),
        (1, 500, 500, b"a"), (1, 500, 501, b"b"), (1, 502, 502, b"c"),
    ]  # fmt: skip


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_decompressed_bodies_are_used_in_the_order_of_the_compressed_batches(
    kernel: ModuleType, codec: Compression
) -> None:
    first, plain, second = [Record(value=b"1" * 99)], [Record(value=b"2")], [Record(value=b"3" * 99)] * 2
    parts = [encode(first, codec=codec), encode(plain), encode(second, codec=codec)]
    bodies = [compression.decompress(codec, memoryview(part)[61:], 1000) for part in (parts[0], parts[2])]

    position, status, found = decode(kernel, b"".join(parts), 0, bodies)

    assert (position, status) == (sum(map(len, parts)), DecodeStatus.OK)
    assert [row["value"][:1] for row in found] == [b"1", b"2", b"3", b"3"]
    assert [row["attributes"] for row in found] == [codec, 0, codec, codec]


def test_the_number_of_bodies_must_equal_the_number_of_compressed_batches(kernel: ModuleType) -> None:
    data = batch(record()) + encode([Record(value=b"1")], codec=Compression.ZSTD)
    builder = kernel.ColumnBuilder()

    for bodies in ([], [record()] * 2):
        with pytest.raises(ValueError, match=f"{len(bodies)} bodies for 1 compressed batches"):
            builder.append(0, 0, data, 0, len(data), bodies)

    assert builder.row_count == 0


def test_a_batch_that_could_not_be_decompressed_has_no_rows(kernel: ModuleType) -> None:
    good = batch(record())
    data = good + batch(record(), attributes=4)

    position, status, found = decode(kernel, data, 0, [None])

    assert (position, status, len(found)) == (len(good), DecodeStatus.UNDECODABLE, 1)


def test_with_log_append_time_every_record_has_the_max_timestamp(kernel: ModuleType) -> None:
    data = batch(record(0, time=5), record(1, time=MAX), attributes=0x08, base_time=MAX, max_time=123)

    _, status, found = decode(kernel, data)

    assert status is DecodeStatus.OK
    assert [row["timestamp"] for row in found] == [123_000, 123_000]


def test_a_control_batch_has_no_rows(kernel: ModuleType) -> None:
    data = batch(record(key=b"\0\0\0\1", value=b"\0" * 6), attributes=0x30)

    assert decode(kernel, data) == (0, DecodeStatus.CONTROL, [])
    assert decode(kernel, batch(b"", count=0, last_delta=0, attributes=0x20)) == (0, DecodeStatus.CONTROL, [])


@pytest.mark.parametrize(
    ("ms", "delta", "attributes", "expected"),
    [
        (LATEST_MS, 0, 0, LATEST_MS * 1000),
        (EARLIEST_MS, 0, 0, EARLIEST_MS * 1000),
        (LATEST_MS, 1, 0, None),
        (EARLIEST_MS, -1, 0, None),
        (MAX // 1000, 0, 0, None),
        (MAX, 0, 0, None),
        (MAX, MAX, 0, None),
        (-MAX - 1, -1, 0, None),
        (-MAX - 1, MAX, 0, -1000),
        (MAX, -MAX, 0, 0),
        (MAX // 1000 + 1, 0, 8, None),
    ],
)
def test_times_beyond_the_years_1_to_9999_are_clamped_and_inexact(
    kernel: ModuleType, ms: int, delta: int, attributes: int, expected: int | None
) -> None:
    data = batch(record(time=delta), attributes=attributes, base_time=ms, max_time=ms)

    position, status, found = decode(kernel, data)

    clamped = (LATEST_MS if ms > 0 else EARLIEST_MS) * 1000
    assert [row["timestamp"] for row in found] == [clamped if expected is None else expected]
    assert status is (DecodeStatus.INEXACT if expected is None else DecodeStatus.OK)
    assert position == (0 if expected is None else len(data))


@pytest.mark.parametrize(
    "key",
    [
        b"\xff",
        b"a\xc3",
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80x",
        b"\xf0\x9f\x98",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88",
    ],
)
def test_header_keys_that_are_not_utf_8_are_replaced_and_inexact(kernel: ModuleType, key: bytes) -> None:
    _, status, found = decode(kernel, batch(record(headers=[(b"good", b""), (key, b"\xff")])))

    assert status is DecodeStatus.INEXACT
    assert found[0]["headers"] == [(b"good", b""), (key.decode(errors="replace").encode(), b"\xff")]


def test_valid_utf_8_of_every_length_is_exact(kernel: ModuleType) -> None:
    key = "az\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff".encode()

    _, status, found = decode(kernel, batch(record(headers=[(key, None)])))

    assert (status, found[0]["headers"]) == (DecodeStatus.OK, [(key, None)])


def test_a_record_with_attributes_is_inexact(kernel: ModuleType) -> None:
    _, status, found = decode(kernel, batch(record(0, attributes=1), record(1)))

    assert (status, len(found)) == (DecodeStatus.INEXACT, 2)


def test_gaps_between_offsets_are_kept_but_a_gap_at_the_end_is_inexact(kernel: ModuleType) -> None:
    inside = batch(record(1), record(4), last_delta=4)

    assert decode(kernel, inside, 100)[1] is DecodeStatus.OK
    assert [row["offset"] for row in decode(kernel, inside, 100)[2]] == [101, 104]
    assert decode(kernel, batch(record(0), last_delta=1))[1] is DecodeStatus.INEXACT


GOOD = record(0)


@pytest.mark.parametrize(
    "data",
    [
        batch(GOOD, GOOD),
        batch(GOOD, record(2), record(1), last_delta=2),
        batch(GOOD, record(2)),
        batch(record(-1)),
        batch(count=0, last_delta=0),
        batch(GOOD, count=-1, last_delta=0),
        batch(GOOD, count=2**31 - 1),
        batch(GOOD, count=2),
        batch(GOOD, record(1), count=1),
        batch(GOOD + b"\0"),
        batch(record(tail=b"\0")),
        batch(record(length=5)),
        batch(record(length=900)),
        batch(record(length=-1)),
        batch(record(length=0) + GOOD),
        batch(record(headers=[(None, b"x")])),
        batch(zigzag(8) + b"\0\0\0\3\2v\0\0\0"),
        batch(zigzag(7) + b"\0\0\0\1\2v\1"),
        batch(zigzag(7) + b"\0\0\0\1\2v\2"),
        batch(zigzag(7) + b"\0\0\0\1\x10v\0"),
        batch(zigzag(12) + b"\0" + b"\xff" * 9 + b"\2\0"),
        batch(b"\x80\x80\x80\x80\x10" + GOOD[1:]),
        batch(GOOD, attributes=5),
    ],
)
def test_a_batch_that_contradicts_itself_has_no_rows(kernel: ModuleType, data: bytes) -> None:
    bodies = [GOOD] if data[22] & 7 else []
    good = batch(record(0, key=None, headers=[(b"h", None)]), record(1, key=b"k"))

    position, status, found = decode(kernel, good + data, 0, bodies)

    assert (position, status) == (len(good), DecodeStatus.UNDECODABLE)
    assert [(row["key"], row["value"], len(row["headers"])) for row in found] == [(None, b"v", 1), (b"k", b"v", 0)]


@pytest.mark.parametrize(
    "tail", [b"\0", b"\0" * 60, batch(GOOD)[:-1], batch(GOOD, magic=1), batch(GOOD, last_delta=-1)]
)
def test_bytes_that_are_not_a_batch_stop_the_builder(kernel: ModuleType, tail: bytes) -> None:
    good = batch(GOOD)

    position, status, found = decode(kernel, good + tail)

    assert (position, status, len(found)) == (len(good), DecodeStatus.UNDECODABLE, 1)


def test_a_rejected_batch_leaves_no_trace_in_later_rows(kernel: ModuleType) -> None:
    builder = kernel.ColumnBuilder()
    bad = batch(*[record(i, key=b"no", value=None, headers=[(b"no", None)]) for i in range(20)], b"\0\0\0\0\0\0\0")
    good = batch(record(0, key=None, value=b"yes"), record(1, key=b"k", value=None, headers=[(b"h", None)]))

    for base in range(0, 20, 2):
        assert builder.append(0, base, bad, 0, len(bad), []) == (0, DecodeStatus.UNDECODABLE)
        assert builder.append(0, base, good, 0, len(good), []) == (len(good), DecodeStatus.OK)
    found = rows(builder.take())

    assert [row["offset"] for row in found] == list(range(20))
    assert [(row["key"], row["value"], row["headers"]) for row in found] == [
        (None, b"yes", []),
        (b"k", None, [(b"h", None)]),
    ] * 10


def test_without_nulls_there_are_no_bitmaps(kernel: ModuleType) -> None:
    builder = kernel.ColumnBuilder()
    data = batch(record(key=b"", value=b"", headers=[(b"", b"")]))
    bad = batch(record(0, key=None, value=None, headers=[(b"", None)]), count=2)
    builder.append(0, 0, bad, 0, len(bad), [])
    builder.append(0, 0, data, 0, len(data), [])

    columns = builder.take()

    assert (columns.key_validity, columns.value_validity, columns.header_value_validity) == (None, None, None)


def test_taken_columns_stay_unchanged_while_the_builder_continues(kernel: ModuleType) -> None:
    builder = kernel.ColumnBuilder()
    taken = []
    for index in range(50):
        data = batch(*[record(delta, value=b"%d" % index * 50) for delta in range(40)])
        builder.append(index, 0, data, 0, len(data), [])
        taken.append(builder.take())
        if index % 3 == 0:
            taken[index // 2] = None

    for index, columns in enumerate(taken):
        if columns is not None:
            assert {row["value"] for row in rows(columns)} == {b"%d" % index * 50}
            assert {row["partition_id"] for row in rows(columns)} == {index}


def test_taken_columns_are_read_only_and_of_the_exact_size(kernel: ModuleType) -> None:
    builder = kernel.ColumnBuilder()
    data = batch(record(key=None, headers=[(b"h", None)]))
    builder.append(0, 0, data, 0, len(data), [])

    columns = builder.take()

    sizes = [4, 8, 8, 8, 0, 1, 8, 8, 1, 8, 0, 1, 8, 1, None, 8, 4, 8, 4, 4]
    assert [None if column is None else len(bytes(column)) for column in columns[1:]] == sizes
    assert all(memoryview(column).readonly for column in columns[1:] if column is not None)


def test_empty_columns_have_their_offsets(kernel: ModuleType) -> None:
    columns = kernel.ColumnBuilder().take()

    assert rows(columns) == []
    assert bytes(columns.key_offsets) == bytes(columns.header_key_offsets) == bytes(4)


def test_counts_and_sizes_grow_with_the_rows(kernel: ModuleType) -> None:
    builder = kernel.ColumnBuilder()
    data = batch(record(0, key=b"kk", value=b"vvv", headers=[(b"hhhh", b"ccccc")]), record(1, value=None))

    assert (builder.row_count, builder.size_bytes) == (0, 0)
    builder.append(0, 0, data, 0, len(data), [])
    assert (builder.row_count, builder.size_bytes) == (2, 2 * 60 + 8 + 2 + 3 + 4 + 5)
    builder.take()
    assert (builder.row_count, builder.size_bytes) == (0, 0)


def test_a_full_builder_accepts_the_batch_after_its_columns_were_taken(kernel: ModuleType) -> None:
    data = batch(record(value=b"v" * 100))
    size = len(data) - 61
    builder = kernel.ColumnBuilder(100 + 3 * size)

    assert builder.append(0, 0, data * 3, 0, 3 * len(data), []) == (2 * len(data), DecodeStatus.OVERFLOW)
    assert builder.take().row_count == 2
    assert builder.append(0, 2, data, 0, len(data), []) == (len(data), DecodeStatus.OK)


def test_a_batch_too_large_for_empty_columns_is_undecodable(kernel: ModuleType) -> None:
    for records in ([record(value=b"v" * 100)], [record(headers=[(b"\xff" * 34, b"")])]):
        data = batch(*records)
        builder = kernel.ColumnBuilder(99)

        assert builder.append(0, 0, data, 0, len(data), []) == (0, DecodeStatus.UNDECODABLE)
        assert builder.row_count == 0


def test_offsets_end_before_the_largest_int64(kernel: ModuleType) -> None:
    data = batch(GOOD)

    assert decode(kernel, data, MAX - 1)[:2] == (len(data), DecodeStatus.OK)
    assert decode(kernel, data, MAX)[:2] == (0, DecodeStatus.UNDECODABLE)
    assert decode(kernel, data * 2, MAX - 1)[:2] == (len(data), DecodeStatus.UNDECODABLE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-1, 0, GOOD, 0, 0, []), "partition index -1"),
        ((2**31, 0, GOOD, 0, 0, []), "partition index 2147483648"),
        ((0, -1, GOOD, 0, 0, []), "base offset -1"),
        ((0, 2**63, GOOD, 0, 0, []), "base offset 9223372036854775808"),
        ((0, 0, GOOD, 1, 0, []), "not inside a buffer"),
        ((0, 0, GOOD, 0, 99, []), "not inside a buffer"),
    ],
)
def test_arguments_out_of_range_are_refused(kernel: ModuleType, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kernel.ColumnBuilder().append(*arguments)


@pytest.mark.parametrize("bytes_max", [-1, 2**31, 2**70])
def test_columns_have_at_most_int32_bytes(kernel: ModuleType, bytes_max: int) -> None:
    with pytest.raises(ValueError, match="column_bytes_max"):
        kernel.ColumnBuilder(bytes_max)


def test_columns_go_to_arrow_without_a_copy(kernel: ModuleType) -> None:
    arrow = pytest.importorskip("pyarrow")
    builder = kernel.ColumnBuilder()
    data = batch(*[record(delta, key=b"k" if delta % 3 else None, value=b"%d" % delta) for delta in range(20)])
    builder.append(0, 0, data, 0, len(data), [])
    columns = builder.take()

    buffers = [None if part is None else arrow.py_buffer(part) for part in (columns.key_validity, columns.key_offsets)]
    keys = arrow.Array.from_buffers(arrow.binary(), 20, [*buffers, arrow.py_buffer(columns.key_data)])
    del columns, builder

    keys.validate(full=True)
    assert keys.to_pylist() == [b"k" if delta % 3 else None for delta in range(20)]
