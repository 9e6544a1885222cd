"""Columns to batches: canonical batches come back byte for byte, other batches with the same records."""

import threading
from array import array
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from bearlake import kernel as kernel_in_use
from bearlake.errors import Corrupt
from bearlake.kernel import Columns, DecodeStatus, EncodedBatch
from bearlake.records import codec
from bearlake.records.codec import Producer, Record, encode
from fixtures.columns import batch, record, rows

SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BODY = st.one_of(st.none(), st.binary(max_size=200))
RECORDS = st.builds(
    Record,
    key=BODY,
    value=BODY,
    timestamp=st.one_of(st.integers(-1, 5), st.integers(-1, 253_402_300_799_999)),
    headers=st.lists(st.tuples(st.text(max_size=5), BODY), max_size=3).map(tuple),
)
PRODUCERS = st.builds(
    Producer,
    id=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**15 - 1),
    base_sequence=st.integers(0, 2**31 - 1),
    is_transactional=st.booleans(),
)
CANONICAL = st.builds(
    lambda records, producer: encode(records, producer=producer),
    st.lists(RECORDS, min_size=1, max_size=20),
    st.one_of(st.just(codec.NON_IDEMPOTENT), PRODUCERS),
)


def columns_of(kernel: ModuleType, *parts: tuple[int, int, bytes]) -> Columns:
    """Columns of (partition, base offset, batches)."""
    builder = kernel.ColumnBuilder()
    for partition, base, data in parts:
        assert builder.append(partition, base, data, 0, len(data), []) == (len(data), DecodeStatus.OK)
    return builder.take()


@SETTINGS
@given(parts=st.lists(CANONICAL, min_size=1, max_size=4), base=st.integers(0, 2**62))
def test_canonical_batches_are_encoded_byte_for_byte(kernel: ModuleType, parts: list[bytes], base: int) -> None:
    data = b"".join(parts)
    headers = [header for _, _, header in kernel.batches(data, 0, len(data))]
    stored = bytearray(data)
    kernel.rebase(stored, [(0, base, sum(header.record_count for header in headers), 0, len(data), 0)], -1)

    columns = columns_of(kernel, (5, base, data))
    out, encoded = kernel.encode_columns(columns, 0, columns.row_count)

    assert out == stored
    assert isinstance(out, bytearray)
    position, offset = 0, base
    for found, header in zip(encoded, headers, strict=True):
        end = offset + header.record_count
        expected = (5, offset, end, position, header.length, header.attributes, header.max_timestamp)
        assert isinstance(found, EncodedBatch)
        assert found == expected
        position, offset = position + header.length, end


def test_other_batches_keep_their_records_and_what_clients_see_of_the_header(kernel: ModuleType) -> None:
    wide = b"\x80\x80\x00"  # a varint of three bytes, all of them zero
    inner = b"\0" + b"\x0a" + wide + b"\1" + b"\x02v" + b"\0"
    odd = batch(
        bytes([2 * len(inner)]) + inner,
        record(1, time=-3, headers=[(b"h", None)]),
        attributes=0x40 | 0x10,
        base_time=100,
        max_time=999,
        producer=(7, 3, 50),
    )
    out, encoded = kernel.encode_columns(columns_of(kernel, (0, 10, odd)), 0, 2)

    ((_, base, header),) = kernel.batches(out, 0, len(out))
    assert (base, header.attributes, header.last_offset_delta, header.record_count) == (10, 0x50, 1, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 50)
    assert (header.base_timestamp, header.max_timestamp, encoded[0].max_timestamp) == (105, 105, 105)
    assert codec.decode(out, 1000) == codec.decode(odd, 1000)
    assert int.from_bytes(out[17:21], "big") == kernel.crc32c(out, 21)


def test_log_append_times_are_encoded_as_consumers_saw_them(kernel: ModuleType) -> None:
    stamped = batch(record(0, time=5), record(1, time=9), attributes=0x08, base_time=3, max_time=1234)

    out, encoded = kernel.encode_columns(columns_of(kernel, (0, 0, stamped)), 0, 2)

    assert codec.decode(out, 1000) == codec.decode(stamped, 1000)
    assert kernel.batches(out, 0, len(out))[0][2].max_timestamp == encoded[0].max_timestamp == 1234
    assert kernel.batches(out, 0, len(out))[0][2].attributes == 0x08


def test_batches_are_uncompressed_and_their_codec_is_reported(kernel: ModuleType) -> None:
    builder = kernel.ColumnBuilder()
    data = batch(b"packed", count=1, attributes=0x14)
    assert builder.append(0, 0, data, 0, len(data), [record()]) == (len(data), DecodeStatus.OK)

    out, encoded = kernel.encode_columns(builder.take(), 0, 1)

    assert encoded[0].attributes == 0x14
    assert kernel.batches(out, 0, len(out))[0][2].attributes == 0x10
    assert bytes(out[61:]) == record()


def test_zeros_of_a_batch_without_a_producer_are_kept(kernel: ModuleType) -> None:
    data = batch(record(), producer=(-1, 0, 0))

    out, _ = kernel.encode_columns(columns_of(kernel, (0, 0, data)), 0, 1)

    assert out[43:57] == data[43:57]


def test_gaps_between_offsets_are_kept(kernel: ModuleType) -> None:
    data = batch(record(2), record(5), last_delta=5)

    out, encoded = kernel.encode_columns(columns_of(kernel, (0, 100, data)), 0, 2)

    assert (encoded[0].base_offset, encoded[0].end_offset) == (100, 106)
    assert [found.offset_delta for found in codec.decode(out, 1000)] == [2, 5]
    assert kernel.batches(out, 0, len(out))[0][2].last_offset_delta == 5


def test_a_range_of_rows_gives_its_batches(kernel: ModuleType) -> None:
    second = batch(record(0, value=b"0"), record(1, value=None), record(2, key=b"k"))
    columns = columns_of(kernel, (0, 0, second + second), (1, 0, second))

    assert kernel.encode_columns(columns, 0, 0) == (bytearray(), [])
    assert kernel.encode_columns(columns, 9, 9) == (bytearray(), [])
    whole, all_batches = kernel.encode_columns(columns, 0, 9)
    middle, first = kernel.encode_columns(columns, 3, 6)
    part, cut = kernel.encode_columns(columns, 4, 8)

    assert [(found.partition_id, found.base_offset) for found in all_batches] == [(0, 0), (0, 3), (1, 0)]
    assert middle == whole[all_batches[1].position : all_batches[2].position]
    assert first == [all_batches[1]._replace(position=0)]
    assert [(found.partition_id, found.base_offset, found.end_offset) for found in cut] == [(0, 3, 6), (1, 0, 2)]
    assert codec.decode(part[: cut[0].length], 1000) == codec.decode(second, 1000)[1:]


@pytest.mark.parametrize("rows", [(-1, 0), (0, 2), (1, 0), (2, 2)])
def test_rows_outside_the_columns_are_refused(kernel: ModuleType, rows: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="are not inside columns of 1 rows"):
        kernel.encode_columns(columns_of(kernel, (0, 0, batch(record()))), *rows)


def test_buffers_may_be_longer_and_empty_buffers_may_be_none(kernel: ModuleType) -> None:
    columns = columns_of(kernel, (0, 0, batch(record(value=b"v"), record(1, value=None))))
    changes: dict[str, Any] = {
        name: None if name.startswith(("header_key_", "header_value_")) else bytearray(bytes(column) + b"\xff" * 9)
        for name, column in columns._asdict().items()
        if name != "row_count" and column is not None
    }
    longer = columns._replace(**changes)

    assert kernel.encode_columns(longer, 0, 2) == kernel.encode_columns(columns, 0, 2)


def test_short_buffers_are_refused_by_name(kernel: ModuleType) -> None:
    columns = columns_of(kernel, (0, 0, batch(record(value=None))))
    for name, column in columns._asdict().items():
        if name.startswith(("header_key_", "header_value_")) or name.endswith("_data"):
            continue
        if name == "row_count":
            with pytest.raises(ValueError, match="row count -1 is negative"):
                kernel.encode_columns(columns._replace(row_count=-1), 0, 0)
            continue
        if column is None:
            continue
        with pytest.raises(ValueError, match=f"column {name} has"):
            kernel.encode_columns(columns._replace(**{name: bytes(column)[:-1]}), 0, 1)


def ints(code: str, *values: int) -> bytes:
    return array(code, values).tobytes()


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"base_offset": ints("q", -1, -1)}, 0),
        ({"offset": ints("q", 0, 0)}, 1),
        ({"offset": ints("q", 5, 3)}, 1),
        ({"offset": ints("q", 0, 2**31)}, 1),
        ({"offset": ints("q", -1, 0)}, 0),
        ({"offset": ints("q", 2**63 - 1, 0), "base_offset": ints("q", 2**63 - 1, 0)}, 0),
        ({"attributes": ints("i", 2**15, 0)}, 0),
        ({"producer_epoch": ints("i", -(2**15) - 1, 0)}, 0),
        ({"key_offsets": ints("i", -1, 0, 0)}, 0),
        ({"key_offsets": ints("i", 0, 0, 2**31 - 1)}, 1),
        ({"value_offsets": ints("i", 0, 1, 0)}, 1),
        ({"value_offsets": ints("i", 0, 1, 3)}, 1),
        ({"header_list_offsets": ints("i", 0, 0, 9)}, 1),
        ({"header_list_offsets": ints("i", 0, -1, 0)}, 0),
        ({"header_list_offsets": ints("i", 1, 0, 0)}, 0),
        ({"header_key_offsets": ints("i", 0, 9)}, 1),
        ({"header_key_offsets": b""}, 1),
        ({"header_value_offsets": ints("i", 1, 0)}, 1),
        ({"header_value_validity": b""}, 1),
    ],
)
def test_columns_that_contradict_themselves_are_corrupt(kernel: ModuleType, changes: dict[str, Any], row: int) -> None:
    columns = columns_of(kernel, (0, 0, batch(record(), record(1, headers=[(b"h", b"c")]))))

    with pytest.raises(Corrupt, match=f"row {row} of the columns is impossible"):
        kernel.encode_columns(columns._replace(**changes), 0, 2)


def test_two_threads_never_share_a_builder() -> None:
    data = encode([Record(value=b"v" * 1000)] * 1000)
    builder = kernel_in_use.ColumnBuilder()
    added: list[int] = []
    refusals: list[str] = []
    start = threading.Barrier(2)

    def add() -> None:
        start.wait(30)
        for _ in range(30):
            try:
                builder.append(0, 0, data, 0, len(data), [])
                added.append(1000)
            except RuntimeError as error:
                refusals.append(str(error))

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert set(refusals) <= {"the ColumnBuilder is in use by another thread"}
    assert builder.row_count == sum(added)
    assert {row["value"] for row in rows(builder.take())} == {b"v" * 1000}
