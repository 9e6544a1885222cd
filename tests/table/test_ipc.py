"""Arrow IPC messages to record batches and back: what pyarrow writes is what Kafka's clients read, and the other way round."""

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid
from bearlake.records import codec as record_codec
from bearlake.records.batch import Compression
from bearlake.records.codec import NON_IDEMPOTENT, Producer, Record
from bearlake.table import ipc_decode, ipc_encode

NOW_MS = 1_700_000_000_000
MANY = 1 << 30


def schema_of(rows: pa.RecordBatch) -> ipc_decode.Schema:
    return ipc_decode.read_schema(rows.schema.serialize())


def encode(rows: pa.RecordBatch, producer: Producer = NON_IDEMPOTENT) -> bytearray:
    return ipc_decode.encode(schema_of(rows), rows.serialize(), producer, NOW_MS)


def stored(rows: pa.RecordBatch) -> list[Record]:
    """The records of the batch that the rows become."""
    batch = encode(rows)
    found = kernel.inspect(batch, 0, len(batch))
    assert not isinstance(found, int), found
    return record_codec.decode(batch, MANY)


def read(*batches: bytes, start: int = 0, bytes_max: int = MANY) -> list[tuple[pa.RecordBatch | None, int]]:
    views = [memoryview(b"".join(batches))]
    schema = pa.ipc.read_schema(pa.ipc.read_message(ipc_encode.schema_message()))
    found = ipc_encode.pieces(views, start, bytes_max, MANY)
    return [(None if message is None else pa.ipc.read_record_batch(message, schema), end) for message, end in found]


def at(base_offset: int, records: list[Record], **options: Any) -> bytes:
    """A stored batch."""
    batch = bytearray(record_codec.encode(records, **options))
    batch[:8] = base_offset.to_bytes(8, "big")
    return bytes(batch)


def test_columns_become_records() -> None:
    headers = pa.array([[], None, [{"key": "a", "value": b""}, {"key": "é", "value": None}]])
    rows = pa.record_batch(
        {
            "headers": headers,
            "value": pa.array([b"v", None, b""]),
            "timestamp": pa.array([5, None, 7], pa.timestamp("ms")),
            "key": pa.array(["k", "", None]),
        }
    )

    assert stored(rows) == [
        Record(key=b"k", value=b"v", timestamp=5, offset_delta=0),
        Record(key=b"", value=None, timestamp=NOW_MS, offset_delta=1),
        Record(key=None, value=b"", timestamp=7, headers=(("a", b""), ("é", None)), offset_delta=2),
    ]


def test_a_value_is_all_that_is_needed_and_offsets_are_not_looked_at() -> None:
    rows = pa.record_batch({"value": pa.array(["a", "b"]), "offset": pa.array([70, 7])})

    assert [(item.key, item.value, item.timestamp, item.headers) for item in stored(rows)] == [
        (None, b"a", NOW_MS, ()),
        (None, b"b", NOW_MS, ()),
    ]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary(1)], ids=str
)
def test_keys_values_and_header_keys_have_every_supported_width(kind: pa.DataType) -> None:
    texts = (
        pa.array([b"a", None, b"c"], pa.binary()).cast(kind)
        if kind != pa.binary(1)
        else pa.array([b"a", None, b"c"], kind)
    )
    array = pa.array([b"x"], kind) if kind == pa.binary(1) else pa.array([b"x"], pa.binary()).cast(kind)
    entries = pa.StructArray.from_arrays([array, array], ["value", "key"])
    headers = pa.LargeListArray.from_arrays(pa.array([0, 1, 1, 1], pa.int64()), entries)

    found = stored(pa.record_batch({"key": texts, "value": texts, "headers": headers}))

    assert [item.key for item in found] == [item.value for item in found] == [b"a", None, b"c"]
    assert found[0].headers == (("x", b"x"),)


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1_500_000_000_123, None], pa.int64()),
        pa.array([1_500_000_000_123, None], pa.timestamp("ms", "Europe/Paris")),
        pa.array([1_500_000_000_123_999, None], pa.timestamp("us")),
        pa.array([1_500_000_000_123_999_999, None], pa.timestamp("ns")),
    ],
    ids=lambda times: str(times.type),
)
def test_times_in_every_unit_are_kept_in_ms(times: pa.Array) -> None:
    found = stored(pa.record_batch({"timestamp": times, "value": pa.array([b"a", b"b"])}))

    assert [item.timestamp for item in found] == [1_500_000_000_123, NOW_MS]


def test_the_producer_is_that_of_the_call() -> None:
    batch = encode(pa.record_batch({"value": pa.array([b"a"])}), Producer(id=7, epoch=3, base_sequence=11))
    header = kernel.inspect(batch, 0, len(batch))

    assert not isinstance(header, int)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": pa.array([b"k"])}, "a column named value"),
        ({"value": pa.array([b"v"]), "colour": pa.array([1])}, "column 'colour' is not one of"),
        ({"value": pa.array([1])}, "column value: expected binary or string, not int64"),
        ({"value": pa.array(["a", "a"]).dictionary_encode()}, "not a dictionary"),
        ({"value": pa.array(["a"], pa.string_view())}, "column value"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array(["today"])}, "column timestamp"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([2**62], pa.timestamp("s"))}, "not an Arrow record batch"),
        ({"value": pa.array([b"v"]), "headers": pa.array([{"a": 1}])}, "column headers"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[{"a": 1}]])}, "expected key and value"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[{"key": None, "value": b"x"}]])}, "a header without a key"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[None, {"key": b"", "value": b""}]])}, "a header without"),
        ({"value": pa.array([], pa.binary())}, "expected 1 to"),
        ({"value": pa.nulls(1 << 22)}, "expected 1 to"),
    ],
)
def test_columns_that_are_not_records_are_refused(columns: dict[str, pa.Array], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        encode(pa.record_batch(columns))


def test_compressed_bodies_are_refused() -> None:
    rows = pa.record_batch({"value": pa.array([bytes(1 << 20)])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write(rows)
    _, message = pa.ipc.MessageReader.open_stream(sink.getvalue())

    with pytest.raises(Invalid, match="compressed"):
        ipc_decode.encode(schema_of(rows), message.serialize(), NON_IDEMPOTENT, NOW_MS)


@pytest.mark.parametrize("message", [b"", b"nonsense", b"\xff\xff\xff\xff\xff\xff\xff\x7f", bytes(64)])
def test_an_invalid_message_is_refused(message: bytes) -> None:
    rows = pa.record_batch({"value": pa.array([b"v"])})

    with pytest.raises(Invalid):
        ipc_decode.read_schema(message)
    with pytest.raises(Invalid):
        ipc_decode.encode(schema_of(rows), message, NON_IDEMPOTENT, NOW_MS)


def without_type(message: bytes) -> bytes:
    """The message with the type of its header (field 1 of the table Message, after 8 bytes of framing) set to none."""
    found = bytearray(message)
    table = 8 + struct.unpack_from("<I", found, 8)[0]
    vtable = table - struct.unpack_from("<i", found, table)[0]
    found[table + struct.unpack_from("<H", found, vtable + 6)[0]] = 0
    return bytes(found)


def test_a_message_of_another_type_is_not_read_as_a_schema() -> None:
    """pyarrow would read the memory of a record batch as a schema, and end the process or return what lies there."""
    rows = pa.record_batch({"value": pa.array([b"v"])})
    schema, batch = rows.schema.serialize().to_pybytes(), rows.serialize().to_pybytes()

    with pytest.raises(Invalid, match="type record batch"):
        ipc_decode.read_schema(batch)
    with pytest.raises(Invalid, match="type unknown"):  # whose content pyarrow does not verify
        ipc_decode.read_schema(without_type(schema))
    with pytest.raises(Invalid, match="type schema"):
        ipc_decode.encode(schema_of(rows), schema, NON_IDEMPOTENT, NOW_MS)


def test_a_column_name_that_is_not_text_is_refused() -> None:
    message = pa.record_batch({"value": pa.array([b"v"])}).schema.serialize().to_pybytes()

    with pytest.raises(Invalid, match="UTF-8"):
        ipc_decode.read_schema(message.replace(b"value", b"\x80alue"))


def test_rows_without_bytes_do_not_multiply_a_message() -> None:
    """300 bytes could claim a million rows, which take 80 MB."""
    with pytest.raises(Invalid, match="expected 1 to 4"):
        encode(pa.record_batch({"value": pa.nulls(100_000)}))
    with pytest.raises(Invalid, match="expected 1 to 4"):
        encode(pa.record_batch({"value": pa.array([b""] * 100_000, pa.binary(0))}))


def test_rows_of_nulls_are_records() -> None:
    assert len(stored(pa.record_batch({"value": pa.nulls(1000)}))) == 1000


def test_deeply_nested_columns_are_refused() -> None:
    deep = pa.binary()
    for _ in range(20):
        deep = pa.list_(deep)

    with pytest.raises(Invalid, match="nested more than"):
        schema_of(pa.record_batch({"value": pa.array([b"v"]), "offset": pa.nulls(1, deep)}))


def test_very_many_columns_are_refused() -> None:
    columns = {f"c{at}": pa.array([1]) for at in range(100)}

    with pytest.raises(Invalid, match="at most 64 columns"):
        schema_of(pa.record_batch({"value": pa.array([b"v"])} | columns))


def numbers_of(message: bytes, wanted: tuple[int, int]) -> int:
    """Positions of two longs in a message, such as the place and length of a buffer."""
    at = message.index(struct.pack("<qq", *wanted))
    assert message.count(struct.pack("<qq", *wanted)) == 1
    return at


@pytest.mark.parametrize("claimed", [(64, 1 << 40), (1 << 62, 8), (-8, 8), (0, -1), (3, 30), (56, 30), (0, 4)])
def test_a_buffer_outside_the_body_is_refused(claimed: tuple[int, int]) -> None:
    """The content of 30 bytes; its last claim is shorter than the offsets say."""
    rows = pa.record_batch({"value": pa.array([b"v" * 30])})
    message = bytearray(rows.serialize().to_pybytes())
    at = numbers_of(bytes(message), (8, 30))
    message[at : at + 16] = struct.pack("<qq", *claimed)

    with pytest.raises(Invalid):
        ipc_decode.encode(schema_of(rows), bytes(message), NON_IDEMPOTENT, NOW_MS)


@pytest.mark.parametrize("claimed", [(2, 0), (1, 5), (1, -1), (-1, 0), (1 << 40, 0)])
def test_a_column_with_other_counts_is_refused(claimed: tuple[int, int]) -> None:
    rows = pa.record_batch({"value": pa.array([b"v" * 30])})
    message = bytearray(rows.serialize().to_pybytes())
    at = numbers_of(bytes(message), (1, 0))
    message[at : at + 16] = struct.pack("<qq", *claimed)

    with pytest.raises(Invalid):
        ipc_decode.encode(schema_of(rows), bytes(message), NON_IDEMPOTENT, NOW_MS)


def test_any_column_of_a_known_type_may_be_named_offset() -> None:
    for offsets in (pa.array([1.5]), pa.array([True]), pa.array([[1, 2]]), pa.array([{"a": [b"x"]}]), pa.array([7])):
        assert len(stored(pa.record_batch({"offset": offsets, "value": pa.array([b"v"])}))) == 1


@given(st.randoms(use_true_random=False))
def test_damaged_messages_are_refused_or_become_whole_batches(source: random.Random) -> None:
    rows = pa.record_batch(
        {
            "key": pa.array([b"k" * 30, None]),
            "value": pa.array([b"v", b"w" * 50]),
            "headers": pa.array([[{"key": b"a", "value": b"b"}], []]),
        }
    )
    message = bytearray(rows.serialize())
    for _ in range(source.randrange(1, 5)):
        message[source.randrange(len(message))] = source.randrange(256)

    try:
        batch = ipc_decode.encode(schema_of(rows), bytes(message), NON_IDEMPOTENT, NOW_MS)
    except Invalid:
        return
    assert not isinstance(kernel.inspect(batch, 0, len(batch)), int)


def test_batches_become_columns_from_an_offset_on() -> None:
    first = [Record(key=b"a", value=None, timestamp=-1), Record(key=None, value=b"", timestamp=0)]
    second = [Record(value=b"x" * 100, timestamp=9, headers=(("h", None), ("h", b"")))]

    ((rows, end),) = read(at(5, first), at(9, second, codec=Compression.ZSTD), start=6)

    assert end == 10
    assert rows is not None
    assert rows.to_pylist() == [
        {"offset": 6, "timestamp": rows["timestamp"][0].as_py(), "key": None, "value": b"", "headers": []},
        {
            "offset": 9,
            "timestamp": rows["timestamp"][1].as_py(),
            "key": None,
            "value": b"x" * 100,
            "headers": [{"key": b"h", "value": None}, {"key": b"h", "value": b""}],
        },
    ]
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [0, 9]


def test_a_record_without_a_timestamp_has_a_null_timestamp() -> None:
    ((rows, _),) = read(at(0, [Record(value=b"v", timestamp=-1), Record(value=b"v", timestamp=3)]))

    assert rows is not None
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [None, 3]


def test_header_keys_that_are_not_text_and_times_beyond_microseconds_stay_as_they_are() -> None:
    late = 2**62
    ((rows, _),) = read(at(0, [Record(value=b"v", timestamp=late, headers=(("\udcff", b"x"),))]))

    assert rows is not None
    assert rows["headers"].to_pylist() == [[{"key": b"\xff", "value": b"x"}]]
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [late]


def test_control_batches_have_no_rows_but_their_offsets_pass() -> None:
    control = bytearray(at(0, [Record(value=b"marker", timestamp=1)]))
    control[22] |= 0x20

    assert read(bytes(control)) == [(None, 1)]
    assert [(rows.num_rows, end) for rows, end in read(bytes(control), at(1, [Record(value=b"v")])) if rows] == [(1, 2)]


def test_a_damaged_batch_is_reported() -> None:
    broken = bytearray(at(4, [Record(value=b"v")]))
    broken[61] = 0xFF

    with pytest.raises(Corrupt, match="offset 4"):
        read(bytes(broken))


def test_pieces_exceed_the_limit_only_if_one_row_does() -> None:
    records = [Record(value=bytes(size), timestamp=1) for size in (100, 10_000, 100, 100, 20_000, 100)]
    found = read(at(0, records), at(6, records), bytes_max=5_000)

    offsets = [rows["offset"].to_pylist() for rows, _ in found if rows]
    assert [offset for piece in offsets for offset in piece] == list(range(12))
    assert [end for _, end in found] == [piece[-1] + 1 for piece in offsets]
    assert all(rows.nbytes <= 5_000 or rows.num_rows == 1 for rows, _ in found if rows)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=40),
            st.integers(0, 2**41),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 19),
)
def test_rows_that_were_read_can_be_written_again(items: list[Any], start: int) -> None:
    written = [
        Record(key=key, value=value, timestamp=time, headers=tuple(headers)) for key, value, time, headers in items
    ]
    ((rows, end),) = read(at(0, written), start=min(start, len(written) - 1))

    assert end == len(written)
    assert rows is not None
    again = stored(rows)

    fields = [(item.key, item.value, item.timestamp, item.headers) for item in written]
    assert [(item.key, item.value, item.timestamp, item.headers) for item in again] == fields[-len(again) :]
