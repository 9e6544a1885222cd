"""The prefix of Confluent's serializers: schema ids and message indexes."""

import pyarrow as pa
import pytest

from bearlake.table.typed import framing
from bearlake.table.typed.model import SchemaType

HEAD = b"\0\0\0\1\2"


def prefixes(values: list[bytes | None], schema_type: SchemaType) -> list[bytes | None]:
    found: list[bytes | None] = framing.prefixes(pa.array(values, pa.binary()), schema_type).to_pylist()
    return found


@pytest.mark.parametrize("schema_type", [SchemaType.AVRO, SchemaType.JSON])
def test_a_prefix_is_the_magic_byte_and_the_schema_id(schema_type: SchemaType) -> None:
    values = [HEAD + b"x", None, HEAD, b"", HEAD[:4], b"\1\0\0\1\2x", b"{}", b"\0\0\0\1\3y"]

    found = framing.prefixes(pa.array(values, pa.binary()), schema_type)

    assert found.to_pylist() == [HEAD, None, HEAD, b"", b"", b"", b"", b"\0\0\0\1\3"]
    assert sorted(found.dictionary.to_pylist()) == [b"", HEAD, b"\0\0\0\1\3"]
    assert framing.read_head(HEAD + b"x", schema_type) == framing.Head(schema_id=258, message_indexes=(), length=5)


@pytest.mark.parametrize(
    ("octets", "indexes"),
    [
        (b"\0", (0,)),
        (b"\2\0", (0,)),
        (b"\2\6", (3,)),
        (b"\4\2\0", (1, 0)),
        (b"\2\x80\1", (64,)),
        (b"", None),
        (b"\2", None),
        (b"\1", None),
        (b"\2\1", None),
        (b"\xca\1" + bytes(101), None),
        (b"\xff\xff\xff\xff\xff\1", None),
    ],
)
def test_message_indexes_belong_to_the_prefix(octets: bytes, indexes: tuple[int, ...] | None) -> None:
    head = framing.read_head(HEAD + octets, SchemaType.PROTOBUF)
    length = 5 + len(octets)

    assert head == (indexes and framing.Head(schema_id=258, message_indexes=indexes, length=length))
    values = [HEAD + octets, HEAD + b"\0value", None]
    assert prefixes(values, SchemaType.PROTOBUF) == [HEAD + octets if indexes else b"", HEAD + b"\0", None]


def test_the_longest_message_indexes_are_read() -> None:
    octets = HEAD + b"\xc8\1" + b"\xfe\xff\xff\xff\x0f" * 100

    assert prefixes([octets + b"value"], SchemaType.PROTOBUF) == [octets]


def test_a_slice_has_the_prefixes_of_its_rows() -> None:
    values = pa.array([b"x", HEAD + b"1", None, HEAD + b"2"], pa.binary()).slice(1, 3)

    assert framing.prefixes(values, SchemaType.AVRO).to_pylist() == [HEAD, None, HEAD]
