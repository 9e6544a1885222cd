"""Whether bytes are values of a Protobuf schema: both kernels give the answer of Google's parser."""

from random import Random

import pytest
from google.protobuf.message import DecodeError, Message

from bearlake.kernel import TypedOutcome
from bearlake.table.typed import protobuf_types
from bearlake.table.typed.framing import written_indexes
from bearlake.table.typed.model import SchemaError
from bearlake.table.typed.protobuf_validity import ProtobufValidity
from fixtures.protobuf_cases import CASES, PROTO2, PROTO3, files_of, google_class
from fixtures.protobuf_random import ProtobufRandom

HEAD = b"\0\0\0\0\7"


def validity_of(schema: str) -> ProtobufValidity:
    return ProtobufValidity(files_of(schema))


def is_taken(theirs: type[Message], value: bytes) -> bool:
    """Whether Google's parser takes a value."""
    try:
        theirs.FromString(value)
    except DecodeError:
        return False
    return True


@pytest.mark.usefixtures("kernel")
def test_a_value_is_good_if_it_can_be_decoded() -> None:
    for case in CASES:
        found = validity_of(case.schema).failures([HEAD + written_indexes(case.indexes) + case.value], len(HEAD))
        is_bad_text = (
            case.outcome == TypedOutcome.DOMAIN and "UTF-8" in case.label + case.path and case.schema == PROTO3
        )
        is_bad_text = is_bad_text or "surrogate" in case.label
        is_bad_inside = case.label == "recursion of a malformed message"
        assert found == ([0] if case.outcome >= TypedOutcome.TRUNCATED or is_bad_text or is_bad_inside else []), (
            case.label
        )


@pytest.mark.usefixtures("kernel")
def test_googles_parser_takes_the_same_values() -> None:
    random = Random(7)
    bad = 0
    for _ in range(60):
        made = ProtobufRandom(random)
        schema = made.schema()
        theirs, ours = google_class(files_of(schema)), validity_of(schema)
        values = []
        for _ in range(20):
            message = theirs()
            made.fill(message)
            value = message.SerializePartialToString()
            values.append(made.spoiled(value) if random.random() < 0.7 else value)
        failures = set(ours.failures(values, 0))
        bad += len(failures)
        for at, value in enumerate(values):
            if at in failures:
                # Google's Python ends a message at a tag of 0, which Java and Go refuse
                assert not is_taken(theirs, value) or "TAG" in ours.reason(value, 0), (schema, value.hex())
            else:
                assert is_taken(theirs, value) or b"\x80" in value, (
                    schema,
                    value.hex(),
                )  # tags of more than five bytes
    assert bad > 100


@pytest.mark.usefixtures("kernel")
def test_each_value_names_its_message_by_a_path() -> None:
    schema = validity_of("""syntax = "proto3"; message A { map<string, string> m = 1; message B { string s = 1; } message C { B b = 1; } }
        message D { int32 i = 1; }""")
    inner, outer, bad = b"\x0a\1x", b"\x0a\3\x0a\1x", b"\x0a\1\xff"

    def failures(*values: bytes) -> list[int]:
        return schema.failures([HEAD + value for value in values], len(HEAD))

    good = [b"\0", b"\2\0", b"\4\0\0" + inner, b"\4\0\2" + outer, b"\2\2\x08\1", b"\2\2" + bad]
    assert failures(*good) == []
    assert failures(b"", b"\2", b"\2\4", b"\4\0\4", b"\6\0\0\0", b"\1\0", b"\4\0\0" + bad, *good) == list(range(7))
    assert schema.failures([HEAD, HEAD[:3], b""], len(HEAD)) == [0, 1, 2]
    reasons = [
        schema.reason(HEAD + value, len(HEAD))
        for value in (b"", b"\2\4", b"\x82\0\0", b"\4\0\0" + bad, b"\4\0\2\x0a\3" + bad, b"\0\x0a\xff")
    ]
    assert [reason.partition(": ")[2] for reason in reasons] == [
        "no message indexes follow the schema's id",
        "the schema has no message at [2]",
        "its message indexes are not written as serializers do",
        "TEXT in the message A.B",
        "TEXT in the message A.B",
        "TRUNCATED in the message A",
    ]


@pytest.mark.usefixtures("kernel")
def test_a_path_may_have_indexes_of_several_bytes() -> None:
    inner = " ".join(f"message N{at} {{ string s = 1; }}" for at in range(70))
    schema = validity_of(f'syntax = "proto3"; {inner} message Last {{ {inner} }}')
    paths = [(at,) for at in range(71)] + [(70, at) for at in range(70)]
    good = [HEAD + written_indexes(path) + b"\x0a\1x" for path in paths]
    bad = [HEAD + written_indexes(path) + b"\x0a\1\xff" for path in paths]

    assert schema.failures([*good, *bad], len(HEAD)) == [len(good) + at for at in range(len(paths)) if at != 70]


@pytest.mark.usefixtures("kernel")
def test_without_a_head_all_values_are_of_the_first_message() -> None:
    schema = validity_of('syntax = "proto3"; message A { string s = 1; } message B { int32 i = 1; }')

    assert schema.failures([b"", b"\x0a\1x", b"\x0a\1\xff", b"\0"], 0) == [2, 3]
    assert schema.failures([], 0) == []


M = "message M { string s = 1%s; map<string, int32> m = 2%s; }"
NONE, VERIFY = (f" [features.utf8_validation = {name}]" for name in ("NONE", "VERIFY"))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("schema", "is_good"),
    [
        ('syntax = "proto2"; message M { optional string s = 1; map<string, int32> m = 2; }', True),
        ('syntax = "proto3"; ' + M % ("", ""), False),
        ('edition = "2023"; ' + M % ("", ""), False),
        ('edition = "2023"; ' + M % (NONE, NONE), True),
        ('edition = "2023"; option features.utf8_validation = NONE; ' + M % ("", ""), True),
        ('edition = "2023"; option features.utf8_validation = NONE; ' + M % (VERIFY, VERIFY), False),
    ],
)
def test_texts_are_utf8_where_the_schema_asks_for_it(schema: str, is_good: bool) -> None:
    text, key = b"\x0a\1\xff", b"\x12\3\x0a\1\xff"

    assert is_taken(google_class(files_of(schema)), text) is is_taken(google_class(files_of(schema)), key) is is_good
    assert validity_of(schema).failures([text, key], 0) == ([] if is_good else [0, 1])


@pytest.mark.usefixtures("kernel")
def test_a_value_may_nest_100_levels() -> None:
    schema = validity_of(PROTO2)
    path = written_indexes((3,))

    def nested(count: int) -> bytes:
        value = b""
        for _ in range(count):
            value = b"\x12" + length(value) + value
        return HEAD + path + value

    def groups(count: int) -> bytes:
        return HEAD + path + b"\xa3\6" * count + b"\xa4\6" * count

    assert schema.failures([nested(100), nested(101), groups(100), groups(101)], len(HEAD)) == [1, 3]
    assert "DEPTH in the message t2.Rec" in schema.reason(nested(101), len(HEAD))


def length(value: bytes) -> bytes:
    return bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])


def test_a_schema_has_a_bounded_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_types, "TYPE_COUNT_MAX", 2)

    with pytest.raises(SchemaError, match="more than 2 messages"):
        validity_of('syntax = "proto3"; message A { B b = 1; } message B {} message C {}')
