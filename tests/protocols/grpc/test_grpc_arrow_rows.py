"""Rows of declared columns as Arrow, through the Python client: JSON objects to all readers. Hostile messages are refused."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import grpc
import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from bearlake.errors import Invalid, TooLarge
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import codec as record_codec
from bearlake.records.codec import NON_IDEMPOTENT, Record
from bearlake.table import ipc_rows
from fixtures.declared_cases import COLUMNS, UUID_TEXT
from fixtures.grpc_server import GrpcNode

MAX = 16 * 1024 * 1024
PLENTY = pb.Credit(bytes=1 << 40, messages=1 << 20)
NOW_MS = 1_000
PLACE = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.decimal128(4, 1)))])


def encoded(rows: pa.RecordBatch, columns: str = COLUMNS, bytes_max: int = MAX) -> list[Record]:
    """The records that rows become."""
    schema = ipc_rows.read_row_schema(bytes(rows.schema.serialize()))
    batch = ipc_rows.encode(schema, bytes(rows.serialize()), NON_IDEMPOTENT, NOW_MS, columns, bytes_max)
    return record_codec.decode(bytes(batch), 1 << 30)


def values(rows: pa.RecordBatch, columns: str = COLUMNS) -> list[Any]:
    return [json.loads(record.value or b"") for record in encoded(rows, columns)]


def arrow(rows: pa.RecordBatch, *, has_schema: bool = True) -> pb.Payload:
    schema = bytes(rows.schema.serialize()) if has_schema else b""
    return pb.Payload(arrow=pb.ArrowRecords(schema=schema, record_batch=bytes(rows.serialize())))


def test_every_type_becomes_its_text() -> None:
    moment = dt.datetime(2026, 11, 28, 9, 30, 0, 500_000)
    rows = pa.record_batch(
        {
            "b": pa.array([True, None]),
            "i": pa.array([7, None], pa.uint8()),
            "l": pa.array([2**62, None]),
            "f": pa.array([1.5, None], pa.float16()),
            "d": pa.array([1e300, None]),
            "s": pa.array(['a"b\\c\n\x00\x1f/é📦', None], pa.large_string()),
            "bin": pa.array([b"\0\xff", None]),
            "day": pa.array([dt.date(2026, 11, 28), None], pa.date64()),
            "at": pa.array([moment, None], pa.timestamp("ns", "Europe/Berlin")),
            "local": pa.array([moment, None], pa.timestamp("ms")),
            "u": pa.array([UUID(UUID_TEXT).bytes, None], pa.binary(16)),
            "p": pa.array([Decimal("12.3"), None], pa.decimal128(5, 1)),
            "big": pa.array([7, None], pa.int16()),
            "o": pa.array([{"x": 1, "y": [Decimal("2.5"), None]}, None], PLACE),
            "tags": pa.array([[b"\1", None], None], pa.large_list(pa.binary())),
            "m": pa.array([[("k", 0.5), ("", None)], None], pa.map_(pa.string(), pa.float32())),
        }
    )  # fmt: skip
    full, empty = values(rows)

    assert empty == dict.fromkeys(rows.schema.names)
    assert full == {
        "b": True, "i": 7, "l": 2**62, "f": 1.5, "d": 1e300, "s": 'a"b\\c\n\x00\x1f/é📦', "bin": "AP8=", "day": "2026-11-28",
        "at": "2026-11-28 09:30:00.500000Z", "local": "2026-11-28 09:30:00.500000", "u": UUID_TEXT, "p": 12.3, "big": 7,
        "o": {"x": 1, "y": [2.5, None]}, "tags": ["AQ==", None], "m": {"k": 0.5, "": None},
    }  # fmt: skip


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()])
def test_whole_numbers_of_any_type_are_decimals_if_they_fit(type_: pa.DataType) -> None:
    assert values(pa.record_batch({"p": pa.array([7, None], type_)})) == [{"p": 7}, {"p": None}]
    rows = pa.record_batch({"x": pa.array([1], type_)})
    assert encoded(rows, "x decimal(38,37)")[0].value == b'{"x":1.' + b"0" * 37 + b"}"
    with pytest.raises(Invalid, match="column p is decimal"):
        encoded(pa.record_batch({"p": pa.array([120], type_)}), "p decimal(4,2)")


def test_what_stands_behind_a_null_need_not_fit() -> None:
    behind = pa.array([float("nan"), 1.0])
    rows = pa.StructArray.from_arrays([behind], names=["x"], mask=pa.array([True, False]))

    assert values(pa.record_batch({"o": rows}), "o struct<x double>") == [{"o": None}, {"o": {"x": 1.0}}]


def test_columns_of_records_stand_beside_those_of_the_row() -> None:
    rows = pa.record_batch(
        {
            "_key": pa.array([b"k", None]),
            "_timestamp": pa.array([5, None]),
            "l": pa.array([1, 2]),
            "_headers": pa.array([[{"key": "h", "value": b"1"}], []]),
        }
    )

    first, second = encoded(rows)

    assert (first.key, first.timestamp, first.value, first.headers) == (b"k", 5, b'{"l":1}', (("h", b"1"),))
    assert (second.key, second.timestamp, second.value) == (None, NOW_MS, b'{"l":2}')


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "l": st.none() | st.integers(-(2**63), 2**63 - 1),
                "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
                "o": st.none() | st.fixed_dictionaries({"x": st.integers(-(2**31), 2**31 - 1), "y": st.just([])}),
                "m": st.none() | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.just(0.5), max_size=3),
            },
        ),
        min_size=1,
        max_size=8,
    )
)  # fmt: skip
def test_any_rows_are_read_back_by_any_parser(given_rows: list[dict[str, Any]]) -> None:
    types = {"l": pa.int64(), "s": pa.string(), "m": pa.map_(pa.string(), pa.float64()),
             "o": pa.struct([("x", pa.int32()), ("y", pa.list_(pa.decimal128(4, 1)))])}  # fmt: skip

    def cell(row: dict[str, Any], name: str) -> Any:
        found = row.get(name)
        return list(found.items()) if name == "m" and found is not None else found

    columns = {name: pa.array([cell(row, name) for row in given_rows], type_) for name, type_ in types.items()}

    found = values(pa.record_batch(columns))

    assert found == [{name: row.get(name) for name in types} for row in given_rows]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"no": pa.array([1])}, "column 'no' is not one of"),
        ({"_offset": pa.array([1])}, "column '_offset' is not one of"),
        ({"i": pa.array([2**31])}, "column i is int"),
        ({"i": pa.array([1.0])}, "declared as int"),
        ({"s": pa.array([b"x"])}, "declared as string"),
        ({"f": pa.array([float("nan")])}, "NaN"),
        ({"f": pa.array([1e300])}, "too large"),
        ({"p": pa.array([Decimal("12345.6")])}, "column p is decimal"),
        ({"p": pa.array([Decimal("0.001")])}, "column p is decimal"),
        ({"at": pa.array([1], pa.timestamp("us"))}, "has a zone"),
        ({"local": pa.array([1], pa.timestamp("us", "UTC"))}, "has a zone"),
        ({"day": pa.array([10_000_000], pa.date32())}, "row 0 does not fit the columns of the table: FORMAT at day"),
        ({"m": pa.array([[("a", 1.0), ("a", 2.0)]], pa.map_(pa.string(), pa.float64()))}, "REPEATED at m"),
        ({"u": pa.array(["no"])}, "FORMAT at u"),
        ({"u": pa.array([b"abc"], pa.binary(3))}, "16 bytes"),
        ({"o": pa.array([{"z": 1}])}, "its field 'z' is not declared"),
        ({"o": pa.array([[1]])}, "declared as struct"),
        ({"tags": pa.array([{"x": 1}])}, "declared as list"),
        ({"m": pa.array([{"x": 1}])}, "declared as map"),
        ({"s": pa.array(["a"]).dictionary_encode()}, "not a dictionary"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_column(rows: dict[str, pa.Array], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        encoded(pa.record_batch(rows))


def test_a_few_bytes_never_become_many() -> None:
    wide = ", ".join(f"{'c' * 100}{at} boolean" for at in range(500))
    many = pa.record_batch({f"{'c' * 100}{at}": pa.array([True] * 4_000) for at in range(500)})
    with pytest.raises(TooLarge):
        encoded(many, wide)
    nested = pa.ListArray.from_arrays(pa.array([0, 2_000_000_000], pa.int32()), pa.nulls(2_000_000_000))
    with pytest.raises(TooLarge):
        encoded(pa.record_batch({"tags": nested}), "tags list<string>")


async def test_a_client_writes_rows_without_a_registry_and_others_read_json(grpc_node: GrpcNode) -> None:
    await grpc_node.create("orders", table_columns="id long, price decimal(6,2)")
    narrow = pa.record_batch({"id": pa.array([1, 2]), "_key": pa.array(["a", "b"])})
    full = pa.record_batch({"id": pa.array([3]), "price": pa.array([Decimal("1.50")])})
    call = grpc_node.open(methods.PRODUCE_STREAM)
    for payload in (arrow(narrow), arrow(narrow, has_schema=False), arrow(full)):
        await call.write(pb.ProduceStreamRequest(stream="orders", payload=payload))
    await call.done_writing()
    while await call.read() is not grpc.aio.EOF:
        pass

    bad = pa.record_batch({"price": pa.array([Decimal(99999)])})
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="orders", payload=arrow(bad)))
    reader = grpc_node.open(methods.FETCH)
    start = pb.Position(stream="orders", earliest=True)
    await reader.write(pb.FetchRequest(assign=[start], form=pb.FORM_RECORDS, credit=PLENTY))
    found: list[pb.Record] = []
    while len(found) < 5:
        found += (await reader.read()).payload.records.records
    reader.cancel()

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "column price is decimal(6,2)" in (caught.value.details() or "")
    assert [(record.key, record.value) for record in found] == [
        (b"a", b'{"id":1}'),
        (b"b", b'{"id":2}'),
        (b"a", b'{"id":1}'),
        (b"b", b'{"id":2}'),
        (b"", b'{"id":3,"price":1.50}'),
    ]


async def test_records_with_values_are_still_records(grpc_node: GrpcNode) -> None:
    await grpc_node.create("orders", table_columns="id long", schema_validation="value")
    records = pa.record_batch({"value": pa.array([b'{"id": 1}'])})

    first = await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="orders", payload=arrow(records)))
    rows = pa.record_batch({"id": pa.array([2])})
    second = await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="orders", payload=arrow(rows)))

    assert (first.base_offset, second.base_offset) == (0, 1)
