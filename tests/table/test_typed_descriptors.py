"""Compiled Protobuf schemas as text: what one message needs of them has the same columns as the whole."""

from random import Random

import pytest

from bearlake.streams.schemas.formats import protobuf as compiler
from bearlake.table.typed import descriptors, mapping, protobuf
from bearlake.table.typed.model import SchemaError, SchemaType
from fixtures.protobuf_cases import PROTO2, PROTO3, files_of
from fixtures.protobuf_random import ProtobufRandom

EDITION = """edition = "2023"; option features.field_presence = IMPLICIT; package e;
message M { int32 a = 1; int32 b = 2 [features.field_presence = EXPLICIT];
  repeated int32 c = 3 [features.repeated_field_encoding = EXPANDED];
  N d = 4 [features.message_encoding = DELIMITED]; E e = 5 [features.field_presence = EXPLICIT];
  oneof o { string s = 6; int32 t = 7; } map<string, N> m = 8; }
message N { int32 x = 1; } enum E { option features.enum_type = CLOSED; Z = 0; O = 1; }"""
NESTED = """syntax = "proto3"; message A { message B { enum E { Z = 0; } E e = 1; C c = 2; } message C { map<int32, D> d = 1; }
  int32 unused = 1; }
  message D { string s = 1; A.B again = 2; } message Unused { int32 much = 1; }"""


@pytest.mark.parametrize(
    ("schema", "indexes"),
    [*((PROTO2, (at,)) for at in range(6)), (PROTO3, (0,)), (EDITION, (0,)), (NESTED, (0, 0)), (NESTED, (0, 1)), (NESTED, (1,))],
)  # fmt: skip
def test_the_files_of_a_message_have_the_columns_of_the_whole(schema: str, indexes: tuple[int, ...]) -> None:
    whole = descriptors.text_of(files_of(schema))

    text = descriptors.of_message(whole, indexes)

    found = mapping.columns_of(SchemaType.PROTOBUF, text)
    expected = protobuf.columns_of(files_of(schema), indexes)
    assert (found.nodes, found.wires, found.fields, found.paths) == (
        expected.nodes,
        expected.wires,
        expected.fields,
        expected.paths,
    )
    assert descriptors.of_message(text, indexes) == text


def test_random_schemas_keep_their_columns() -> None:
    for seed in range(60):
        files = [file.SerializeToString() for file in compiler.parsed(ProtobufRandom(Random(seed)).schema(), {}).files]

        found = mapping.columns_of(SchemaType.PROTOBUF, descriptors.of_message(descriptors.text_of(files), (0,)))

        assert found.nodes == protobuf.columns_of(files).nodes
        assert found.wires == protobuf.columns_of(files).wires


def test_what_the_message_does_not_use_is_left_out() -> None:
    text = descriptors.of_message(descriptors.text_of(files_of(NESTED)), (0, 0))
    files, message = descriptors.files_of(text)

    assert message == (0, 0)
    assert len(files) == 1
    assert b"unused" not in files[0]
    assert b"much" not in files[0]
    assert len(text) < len(descriptors.text_of(files_of(NESTED)))


@pytest.mark.parametrize("indexes", [(9,), (0, 0), (), (-1,)])
def test_a_path_to_no_message_is_refused(indexes: tuple[int, ...]) -> None:
    text = descriptors.text_of(files_of(PROTO3))

    with pytest.raises(SchemaError, match="no message"):
        descriptors.of_message(text, indexes)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"message": [0], "files": []}', '{"message": [0], "files": ["!"]}', '{"message": [0], "files": ["/w=="]}',
     '{"message": "x", "files": []}', '{"message": null, "files": []}', PROTO3],
)  # fmt: skip
def test_texts_of_no_descriptors_are_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        mapping.columns_of(SchemaType.PROTOBUF, text)
    with pytest.raises(SchemaError):
        descriptors.of_message(text, (0,))
