"""The native codec of Protobuf messages and the Python one agree on every input, hostile ones included."""

from random import Random
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings

from bearlake.errors import Corrupt
from bearlake.kernel import (
    ProtoCoding,
    ProtoLabel,
    ProtoWire,
    TypedKind,
    TypedNode,
    TypedOutcome,
    TypedSource,
    fallback,
)
from bearlake.kernel.typed.protobuf_encode import varint
from bearlake.kernel.typed.protobuf_reader import ProtobufReader
from bearlake.streams.schemas.formats import protobuf as compiler
from bearlake.table.typed import protobuf
from bearlake.table.typed.model import TypedColumns
from fixtures.protobuf_cases import CASES, PROTO2, PROTO3, files_of, google_class
from fixtures.protobuf_random import ProtobufRandom
from fixtures.typed_kernels import by_index, column, outcome, plain, sources

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BYTES_MAX = 2**31 - 1


def decoded(
    module: ModuleType,
    columns: TypedColumns,
    values: list[bytes | None],
    *,
    skip: int = 0,
    is_verified: int = 1,
    limit: int = BYTES_MAX,
) -> Any:
    arguments = (*column(values), 0, len(values), skip, is_verified, limit)
    return plain(outcome(module.decode_protobuf, columns.nodes, columns.wires, *arguments))


def agree(native: ModuleType, columns: TypedColumns, values: list[bytes | None], **options: int) -> Any:
    """Decode and encode with both kernels; return the rows' statuses, or the error."""
    ours, theirs = (decoded(module, columns, values, **options) for module in (native, fallback))
    assert ours == theirs
    statuses, slots = theirs
    if isinstance(statuses, type):
        return theirs
    by_text = sources(slots)
    with_dictionaries = [by_index(Random(len(values)), own) for own in by_text]
    encoded = [
        plain(outcome(module.encode_protobuf, columns.nodes, columns.wires, given_columns, b"ab"))
        for module in (native, fallback)
        for given_columns in (by_text, with_dictionaries)
    ]
    assert encoded == encoded[:1] * 4
    return memoryview(statuses).cast("i").tolist()


def random_schema(random: Random, **limits: int) -> tuple[ProtobufRandom, TypedColumns, type[Message]]:
    """A schema, the columns of its first message, and Google's class of it."""
    made = ProtobufRandom(random)
    files = [file.SerializeToString() for file in compiler.parsed(made.schema(), {}).files]
    return made, protobuf.columns_of(files, **limits), google_class(files)


def random_value(made: ProtobufRandom, theirs: type[Message]) -> bytes:
    message = theirs()
    made.fill(message)
    return message.SerializePartialToString()


def test_both_decode_every_case_alike(native: ModuleType) -> None:
    for levels_max in (16, 1):
        for case in CASES:
            columns = protobuf.columns_of(files_of(case.schema), case.indexes, levels_max=levels_max)
            (status,) = agree(native, columns, [case.value])
            assert levels_max == 1 or status & 255 == case.outcome
            values = [case.value, None, case.value[:-1], b"x" + case.value, case.value]
            agree(native, columns, values, skip=0)
            agree(native, columns, values, skip=1, is_verified=0)


def test_both_decode_two_cases_in_one_message_alike(native: ModuleType) -> None:
    for schema in (PROTO2, PROTO3):
        columns = protobuf.columns_of(files_of(schema))
        chosen = [case.value for case in CASES if case.schema == schema and case.indexes == (0,)]
        for first in chosen:
            agree(native, columns, [first + second for second in chosen])


@SETTINGS
@given(random=st.randoms(use_true_random=False), count=st.integers(0, 20))
def test_both_decode_random_messages_alike(native: ModuleType, random: Random, count: int) -> None:
    made, columns, theirs = random_schema(random)
    values: list[bytes | None] = [random_value(made, theirs) for _ in range(count)]

    statuses = agree(native, columns, values)

    assert all(status & 255 < TypedOutcome.TRUNCATED for status in statuses)


def test_both_decode_spoiled_messages_alike(native: ModuleType) -> None:
    random = Random(19)
    for _ in range(100):
        made, columns, theirs = random_schema(random, levels_max=random.choice((1, 2, 16)))
        values: list[bytes | None] = [None]
        for _ in range(random.randrange(20)):
            value = random_value(made, theirs)
            values.append(made.spoiled(value) if random.random() < 0.7 else value)
        random.shuffle(values)
        limit = random.choice((BYTES_MAX, BYTES_MAX, 300, 3000))
        agree(native, columns, values, skip=random.choice((0, 0, 1)), limit=limit)


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_both_find_the_symbols_of_an_enum_of_many(native: ModuleType, syntax: str) -> None:
    numbers = [0, *(7 * at % 1009 - 500 for at in range(1, 60)), -(2**31), 2**31 - 1]
    symbols = " ".join(f"S{at} = {number};" for at, number in enumerate(numbers))
    label = "optional " if syntax == "proto2" else ""
    files = files_of(f'syntax = "{syntax}"; enum E {{ {symbols} }} message M {{ {label}E e = 1; repeated E all = 2; }}')
    columns = protobuf.columns_of(files)
    values: list[bytes | None] = [b"\x08" + varint(number) for number in (*numbers, 1, -1, 600, 2**31 - 2)]
    values.append(b"".join(b"\x10" + varint(number) for number in numbers))

    statuses = agree(native, columns, values)

    exact = [status & 255 == TypedOutcome.EXACT for status in statuses]
    is_open = syntax == "proto3"
    assert exact == [not is_open, *[True] * (len(numbers) - 1), *[is_open] * 4, not is_open]  # packed in proto3


@pytest.mark.parametrize("row_count", [1, 63, 64, 65, 66, 130, 131])
def test_both_prove_every_row_of_long_columns(native: ModuleType, row_count: int) -> None:
    columns = protobuf.columns_of(files_of(PROTO3))
    kinds = (b"\x08\1", b"\x08\0", b"\x08")

    statuses = agree(native, columns, [kinds[at % 3] for at in range(row_count)])

    expected = (TypedOutcome.EXACT, TypedOutcome.FORM, TypedOutcome.TRUNCATED)
    assert [status & 255 for status in statuses] == [expected[at % 3] for at in range(row_count)]


def test_both_join_pieces_and_forget_the_lists_of_other_fields_of_a_oneof(native: ModuleType) -> None:
    files = files_of("""syntax = "proto3"; message M { oneof o { L a = 1; L b = 2; int32 c = 3; } R r = 4; repeated L d = 5; }
        message L { repeated int32 n = 1; map<string, L2> m = 2; L2 l = 3; } message L2 { repeated string s = 1; }
        message R { R r = 1; string s = 2; }""")
    columns = protobuf.columns_of(files)
    random = Random(3)
    list_ = [
        bytes.fromhex(text)
        for text in ("0a020102", "1203" + "0a0161", "1a03" + "0a0178", "1208" + "0a01611203" + "0a0179")
    ]
    fields = [
        bytes([tag, len(inner)]) + inner for tag in (0x0A, 0x12, 0x2A) for inner in (*list_, b"", list_[0] + list_[1])
    ]
    fields += [b"\x18\1", b"\x22\3\x12\1a", b"\x22\2\x12\0", b"\x22\0"]
    for _ in range(200):
        values: list[bytes | None] = [b"".join(random.choices(fields, k=random.randrange(6))) for _ in range(5)]
        agree(native, columns, values)


def test_the_proof_does_not_trust_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = protobuf.columns_of(files_of(PROTO3))
    right = ProtobufReader._take  # noqa: SLF001 - stands for a decoder with a fault
    monkeypatch.setattr(ProtobufReader, "_take", lambda *arguments: right(*arguments)[::-1])
    value = b"\x61\1\0\0\0\0\0\xf8\x7f"

    assert decoded(fallback, columns, [value], is_verified=0)[0] == bytes(4)
    assert decoded(fallback, columns, [value], is_verified=1)[0] == bytes([TypedOutcome.FORM, 0, 0, 0])


def spoil(random: Random, content: bytes | None) -> bytes | None:
    if content is None or random.random() < 0.03:
        return None if random.random() < 0.5 else b"\0" * random.randrange(9)
    out = bytearray(content)
    for _ in range(random.randrange(1, 3)):
        if out:
            out[random.randrange(len(out))] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return bytes(out[: len(out) - (random.random() < 0.05)])


def test_both_encode_spoiled_columns_alike(native: ModuleType) -> None:
    random = Random(20)
    refused = 0
    for _ in range(100):
        made, columns, theirs = random_schema(random)
        values: list[bytes | None] = [random_value(made, theirs) for _ in range(random.randrange(1, 9))]
        _, slots = decoded(fallback, columns, values)
        for _ in range(5):
            hostile = sources(slots, start=random.choice((0, 0, 0, 1)))
            at = random.randrange(len(hostile))
            change = hostile[at]
            length = change.length + random.choice((0, 0, 0, 1))
            validity, offsets, content = (spoil(random, part) for part in change[2:5])  # type: ignore[arg-type]
            hostile[at] = TypedSource(change.start, length, validity, offsets, content)
            answers = [
                plain(outcome(module.encode_protobuf, columns.nodes, columns.wires, hostile, b""))
                for module in (native, fallback)
            ]
            assert answers[0] == answers[1]
            refused += answers[0][0] is Corrupt
    assert refused > 20


INT = TypedNode(TypedKind.INT)
ROOT = TypedNode(TypedKind.RECORD, children=(1,))
FIELD = ProtoWire(ProtoCoding.INT32, 1, ProtoLabel.IMPLICIT)
LIST = ProtoWire(number=1, label=ProtoLabel.REPEATED)


@pytest.mark.parametrize(
    ("nodes", "wires"),
    [
        ((), ()),
        ((INT,), (FIELD,)),
        ((ROOT, INT), (ProtoWire(),)),
        ((TypedNode(99), INT), (ProtoWire(), FIELD)),
        ((ROOT, ROOT), (ProtoWire(), FIELD)),
        ((TypedNode(TypedKind.RECORD, children=(1, 1)), INT), (ProtoWire(), FIELD)),
        ((ROOT, INT, INT), (ProtoWire(), FIELD, FIELD)),
        ((ROOT, INT), (ProtoWire(coding=99), FIELD)),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(number=2**29))),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(number=0))),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(label=ProtoLabel.ALWAYS))),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(label=ProtoLabel.REPEATED))),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(coding=ProtoCoding.INT64))),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(coding=ProtoCoding.NONE))),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(oneof=1))),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(is_wrapped=True))),
        ((ROOT, INT), (ProtoWire(), FIELD._replace(numbers=(1,)))),
        ((ROOT, INT._replace(null_branch=0)), (ProtoWire(), FIELD)),
        ((ROOT, TypedNode(TypedKind.UNION, children=(2,)), INT), (ProtoWire(), FIELD, FIELD)),
        ((ROOT, TypedNode(TypedKind.ENUM, symbols=(b"A",))), (ProtoWire(), FIELD._replace(coding=ProtoCoding.ENUM))),
        (
            (ROOT, TypedNode(TypedKind.ENUM, symbols=(b"A",))),
            (ProtoWire(), FIELD._replace(coding=ProtoCoding.ENUM, numbers=(2**31,))),
        ),
        ((ROOT, TypedNode(TypedKind.ARRAY, children=(2,)), INT), (ProtoWire(), LIST, FIELD)),
        ((ROOT, TypedNode(TypedKind.PRESENT)), (ProtoWire(), FIELD)),
        ((ROOT, TypedNode(TypedKind.ARRAY, children=(2,)), TypedNode(TypedKind.PRESENT)), (ProtoWire(), LIST, ProtoWire())),
        (
            (ROOT, TypedNode(TypedKind.ARRAY, children=(2,)), TypedNode(TypedKind.STRING)),
            (ProtoWire(), LIST._replace(label=ProtoLabel.PACKED), ProtoWire(ProtoCoding.STRING)),
        ),
        (
            (ROOT, TypedNode(TypedKind.MAP, children=(2, 3)), TypedNode(TypedKind.BYTES), INT),
            (ProtoWire(), LIST, ProtoWire(ProtoCoding.BYTES, 1), ProtoWire(ProtoCoding.INT32, 2)),
        ),
        (
            (*(TypedNode(TypedKind.RECORD, children=(at + 1,)) for at in range(70)), INT),
            (ProtoWire(), *[ProtoWire(ProtoCoding.MESSAGE, 1, ProtoLabel.EXPLICIT)] * 69, FIELD),
        ),
    ],
)  # fmt: skip
def test_nodes_and_wires_that_are_no_message_are_refused_alike(native: ModuleType, nodes: Any, wires: Any) -> None:
    for function, arguments in (
        ("decode_protobuf", (None, bytes(4), b"", 0, 0, 0, 0, 9)),
        ("encode_protobuf", ([], b"")),
    ):
        ours, theirs = (outcome(getattr(module, function), nodes, wires, *arguments) for module in (native, fallback))
        assert ours == theirs
        assert ours[0] is ValueError


@pytest.mark.parametrize(
    "arguments",
    [
        (None, bytes(4), b"", 0, 1, 0, 0, 9),
        (None, b"\0\0\0\0\xff\xff\xff\xff", b"x", 0, 1, 0, 0, 9),
        (b"", bytes(8), b"", 0, 1, 0, 0, 9),
        (None, bytes(8), b"", 1, 0, 0, 0, 9),
        (None, bytes(8), b"", 0, 1, -1, 0, 9),
        (None, bytes(8), b"", 0, 1, 0, 0, 2**31),
    ],
)
def test_values_that_are_no_column_are_refused_alike(native: ModuleType, arguments: Any) -> None:
    ours, theirs = (
        outcome(module.decode_protobuf, (ROOT, INT), (ProtoWire(), FIELD), *arguments) for module in (native, fallback)
    )

    assert ours == theirs
    assert ours[0] is ValueError
