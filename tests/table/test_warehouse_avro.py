"""Avro files of other engines: what `plain` returns is what the library decodes, and hostile files are refused before it sees them.

Source: Apache Avro 1.12 specification, "Object Container Files", "Binary Encoding".
"""

import io
import json
import zlib
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.records import compression
from bearlake.records.batch import Compression
from bearlake.table.warehouse.avro import Budget, plain
from bearlake.table.warehouse.model import Refused

MIB = 1024 * 1024
SYNC = bytes(range(16))


def optional(kind: Any) -> list[Any]:
    """A type that may be null."""
    return ["null", kind]


def field(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


PAIR = {"type": "record", "name": "k1_v2", "fields": [field(21, "key", "int"), field(22, "value", "bytes")]}
SCHEMA = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        field(1, "status", "int"),
        field(2, "number", optional("long")),
        field(3, "path", "string"),
        field(4, "bounds", optional({"type": "array", "logicalType": "map", "items": PAIR})),
        field(5, "splits", optional({"type": "array", "items": "long", "element-id": 51})),
        field(6, "partition", {"type": "record", "name": "r102", "fields": []}),
        field(7, "flag", "boolean"),
        field(8, "ratio", "double"),
        field(9, "mark", {"type": "fixed", "name": "f", "size": 3}),
    ],
}
RECORD = {
    "status": 1,
    "number": None,
    "path": "a/b",
    "bounds": [{"key": 1, "value": b"\x00"}, {"key": 2, "value": b""}],
    "splits": [4, 8, 1 << 40],
    "partition": {},
    "flag": True,
    "ratio": 0.5,
    "mark": b"abc",
}
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "status": st.integers(-(1 << 31), (1 << 31) - 1),
            "number": st.none() | NUMBERS,
            "path": st.text(max_size=20),
            "bounds": st.none()
            | st.lists(st.fixed_dictionaries({"key": st.integers(0, 100), "value": st.binary(max_size=9)}), max_size=3),
            "splits": st.none() | st.lists(NUMBERS, max_size=3),
            "partition": st.just({}),
            "flag": st.booleans(),
            "ratio": st.floats(allow_nan=False),
            "mark": st.binary(min_size=3, max_size=3),
        }
    ),
    min_size=1,
    max_size=5,
)


def written(records: list[Any], codec: str = "deflate", schema: Any = SCHEMA) -> bytes:
    """An Avro file as another library writes it."""
    target = io.BytesIO()
    if codec == "zstandard":  # of which fastavro needs another library
        for record in records:
            fastavro.schemaless_writer(target, schema, record)
        block = bytes(compression.compress(Compression.ZSTD, target.getvalue()))
        return file(block, count=len(records), schema=schema, codec=codec)
    fastavro.writer(target, schema, records, codec=codec, sync_interval=64)
    return target.getvalue()


def encoded(number: int) -> bytes:
    value, found = (number << 1) ^ (number >> 63), bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def text(content: bytes) -> bytes:
    return encoded(len(content)) + content


def file(block: bytes, *, count: int = 1, schema: Any = SCHEMA, codec: str = "null", end: bytes = SYNC) -> bytes:
    """An Avro file with one block, byte by byte."""
    header = encoded(2) + text(b"avro.schema") + text(json.dumps(schema).encode()) + text(b"avro.codec")
    return b"Obj\x01" + header + text(codec.encode()) + encoded(0) + SYNC + encoded(count) + text(block) + end


def record(**kinds: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "r",
        "fields": [field(number, name, kind) for number, (name, kind) in enumerate(kinds.items())],
    }


def checked(content: bytes, bytes_max: int = MIB, value_count_max: int = 100_000) -> bytes:
    return plain(content, "m.avro", Budget(bytes_max, value_count_max))


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
@given(records=RECORDS)
def test_a_plain_file_has_the_same_values(codec: str, records: list[Any]) -> None:
    found = checked(written(records, codec))

    assert list(fastavro.reader(io.BytesIO(found))) == records


@given(content=st.binary(max_size=200), at=st.integers(0, 2_000))
def test_damaged_files_are_refused_or_have_whole_values(content: bytes, at: int) -> None:
    honest = written([RECORD] * 3, "null")
    damaged = honest[: at % len(honest)] + content + honest[at % len(honest) + len(content) :]
    try:
        found = checked(damaged)
    except Refused:
        return

    assert plain(found, "m.avro", Budget(MIB, 100_000)) == found


LONG_ARRAY = {"type": "array", "items": "long", "element-id": 7}
EMPTY_RECORD = {"type": "record", "name": "none", "fields": []}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "does not begin"),
        (b"PAR1" * 8, "does not begin"),
        (file(text(b"x" * 5)[:3], schema=record(a="string")), "longer than its block"),
        (file(encoded(-5), schema=record(a="bytes")), "longer than its block"),
        (file(encoded(1 << 40), schema=record(a="string")), "longer than its block"),
        (file(b"\xff" * 11, schema=record(a="long")), "too long"),
        (file(b"\x00\x00", schema=record(a="long")), "other bytes than its records"),
        (file(b"\x00", count=2, schema=record(a="long")), "out of range"),
        (file(b"\x00", count=-1, schema=record(a="long")), "is empty"),
        (file(b"", count=0, schema=record(a="long")), "is empty"),
        (file(b"\x00", schema=record(a="long"), end=b"\x00" * 16), "file's mark"),
        (file(b"\x00", schema=record(a="long"), end=SYNC[:9]), "file's mark"),
        (file(b"", count=1 << 40, schema=EMPTY_RECORD), "no bytes"),
        (file(encoded(1 << 40) + encoded(0), schema=record(a={"type": "array", "items": EMPTY_RECORD})), "no bytes"),
        (file(encoded(1 << 40) + encoded(0), schema=record(a=LONG_ARRAY)), "manifest_value_count_max"),
        (file(encoded(-1) + encoded(9) + b"\x02" + encoded(0), schema=record(a=LONG_ARRAY)), "another size"),
        (file(encoded(2), schema=record(a=["null", "long"])), "no such type"),
        (file(encoded(-1), schema=record(a=["null", "long"])), "no such type"),
        (file(b"\x00\x00", schema=record(a=["long", "null"])), "null and one type"),
        (file(b"\x00\x00", schema=record(a=["null", "long", "string"])), "not a valid"),
        (file(b"\x00", schema=record(a={"type": "enum", "name": "e", "symbols": ["A"]})), "of the type 'enum'"),
        (file(b"\x00", schema=record(a={"type": "map", "values": "long"})), "of the type 'map'"),
        (file(b"\x00", schema=record(a="r")), "of the type 'r'"),
        (file(b"\x00", schema=record(a={"type": {"type": "long"}})), "not a valid|of the type"),
        (file(b"\x00", schema=record(a={"type": "string", "logicalType": "uuid"})), "logical type 'uuid'"),
        (file(b"\x00", schema=record(a={"type": "bytes", "logicalType": "decimal", "precision": 9})), "logical type"),
        (file(b"\x00", schema=record(a={"type": "fixed", "name": "f", "size": 2})), "ends within"),
        (file(b"\x00", schema=record(a={"type": "fixed", "name": "f", "size": -1})), "no valid size"),
        (file(b"\x00", schema=record(a={"type": "fixed", "name": "f", "size": "1"})), "no valid size"),
        (file(b"\x00\x00", schema={**record(a="int"), "fields": [field(1, "a", "int")] * 2}), "one name or id"),
        (file(b"\x00", schema={"type": "array", "items": "long"}), "is no record"),
        (file(b"\x00", schema=[]), "not a valid"),
        (file(b"\x00", codec="bzip2", schema=record(a="long")), "codec is 'bzip2'"),
        (file(b"\x07\x07", codec="deflate", schema=record(a="long")), "not a valid"),
        (file(b"\x07\x07", codec="zstandard", schema=record(a="long")), "not a valid"),
    ],
)
def test_hostile_files_are_refused(content: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        checked(content)

    assert refused.value.status == 403


def test_types_that_are_too_deep_are_refused() -> None:
    kind: Any = "long"
    for _ in range(20):
        kind = {"type": "array", "items": kind, "element-id": 1}
    with pytest.raises(Refused, match="too deep"):
        checked(file(b"\x00", schema=record(a=kind)))

    nested = b'{"type":"record","name":"r","fields":' + b"[" * 100_000
    header = encoded(1) + text(b"avro.schema") + text(nested)
    with pytest.raises(Refused, match="not a valid"):
        checked(b"Obj\x01" + header + encoded(0) + SYNC)


@pytest.mark.parametrize("codec", ["deflate", "zstandard"])
def test_a_small_file_that_expands_to_much_is_refused_before_it_takes_memory(codec: str) -> None:
    content = written([{"a": "x" * 64 * MIB}], codec, record(a="string"))
    assert len(content) < MIB

    with pytest.raises(Refused, match=r"catalog\.warehouse\.manifest_expanded_bytes_max"):
        checked(content, bytes_max=MIB)


def test_the_limits_are_those_of_all_files_together() -> None:
    content = written([RECORD], "null")
    budget = Budget(10 * len(content), 100)

    for _ in range(3):
        plain(content, "m.avro", budget)
    with pytest.raises(Refused, match=r"catalog\.warehouse\.manifest_value_count_max"):
        plain(content, "m.avro", Budget(10 * len(content), 10))
    with pytest.raises(Refused, match=r"catalog\.warehouse\.manifest_value_count_max"):
        checked(written([RECORD] * 9, "null"), value_count_max=100)


def test_a_stream_of_deflate_has_an_end() -> None:
    stream = zlib.compressobj(wbits=-15)
    block = stream.compress(b"\x00") + stream.flush()

    assert checked(file(block, codec="deflate", schema=record(a="long")))
    with pytest.raises(Refused, match="has no end"):
        checked(file(block[:-1], codec="deflate", schema=record(a="long")))
