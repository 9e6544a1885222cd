"""Protobuf messages as typed columns in the native kernel and in its Python twin: messages of several schemas, and columns of files."""

from collections.abc import Iterator
from random import Random

from bearlake.kernel import TypedOutcome
from bearlake.table.typed import protobuf
from bearlake.table.typed.model import TypedColumns
from bearlake.table.typed.protobuf_types import MessageTypes
from fixtures.protobuf_cases import CASES, PROTO2, PROTO3, files_of
from fuzz.target import Choices, Target
from fuzz.typed_format import BYTES_MAX, TypedFormat, both, cut

ONEOFS = """syntax = "proto3"; message M { oneof o { L a = 1; L b = 2; int32 c = 3; } R r = 4; repeated L d = 5; }
  message L { repeated int32 n = 1; map<string, N> m = 2; L2 l = 3; } message L2 { repeated string s = 1; }
  message N { repeated N n = 1; repeated L2 l = 2; } message R { R r = 1; string s = 2; }"""
"""Lists in members of a oneof, in pieces and in each other."""
PATHS = [(PROTO3, 0), (PROTO2, 0), (PROTO2, 3), (PROTO2, 5), (PROTO2, 2), (PROTO2, 4), (PROTO2, 6), (ONEOFS, 0)]


def _all_columns() -> Iterator[TypedColumns]:
    for levels_max in (16, 1):
        for schema, index in PATHS:
            yield protobuf.columns_of(files_of(schema), (index,), levels_max=levels_max)


COLUMNS = list(_all_columns())


PROTOBUF = TypedFormat("protobuf", [(columns.nodes, columns.wires) for columns in COLUMNS])
TYPES = [MessageTypes(files_of(schema)) for schema in (PROTO3, PROTO2, ONEOFS)]


def messages(data: bytes) -> object:
    """Decode messages with and without the proof, which agree; encode the rows."""
    choices = Choices(data)
    columns, limit = choices.of(COLUMNS), choices.of((BYTES_MAX, BYTES_MAX, 200, 2000))
    skip, cuts = choices.of((0, 0, 0, 1, 5)), [choices.byte() for _ in range(choices.byte() % 4)]
    schema, found = (columns.nodes, columns.wires), cut(choices.rest, cuts)
    answers = [PROTOBUF.decoded(schema, None, found, skip, is_verified, limit) for is_verified in (0, 1)]
    assert answers[0] == answers[1], f"marks {answers[0]!r:.300}, proof {answers[1]!r:.300}"
    return PROTOBUF.again(schema, answers[1])


def checked_messages(data: bytes) -> object:
    """Check messages of any type of a schema."""
    choices = Choices(data)
    types, root = choices.of(TYPES), choices.byte()
    offsets, content, count = cut(choices.rest, [choices.byte() for _ in range(choices.byte() % 3)])
    roots = (root % len(types.names)).to_bytes(4, "little") * count
    tables = bytes(types.starts), bytes(types.parts)
    statuses = both("check_protobuf", *tables, roots, offsets[:-4], offsets[4:], content)
    return [(status >> 8, TypedOutcome(status & 255).name) for status in memoryview(statuses).cast("i")]


def hostile_types(data: bytes) -> object:
    """Check messages by tables that nobody made."""
    choices = Choices(data)
    starts, parts = choices.byte() % 8, choices.byte() % 8
    numbers = b"".join((choices.byte() % 9).to_bytes(4, "little") for _ in range(starts + 3 * parts))
    content = choices.rest
    places = [bytes(4), bytes(4), len(content).to_bytes(4, "little")]
    answer = both("check_protobuf", numbers[: 4 * starts], numbers[4 * starts :], *places, content)
    return str(answer)[:60]


def _message_seeds() -> Iterator[bytes]:
    for case in CASES:
        yield bytes([PATHS.index((case.schema, *case.indexes)), 0, 0, 0]) + case.value
    for text in (
        "0a040a020102",
        "0a0412020a001801",
        "12081206" + "0a0161" + "120112",
        "0a020801120208021a00",
        "2a040a020102" * 2,
    ):
        yield bytes([len(PATHS) - 1, 0, 0, 0]) + bytes.fromhex(text)


def _column_values() -> Iterator[list[bytes]]:
    random = Random(1)
    for at in range(len(COLUMNS)):
        chosen = [case.value for case in CASES if (case.schema, *case.indexes) == PATHS[at % len(PATHS)]] or [b""]
        yield random.choices(chosen, k=2)


def _checked_seeds() -> Iterator[bytes]:
    for case in CASES:
        at = (PROTO3, PROTO2).index(case.schema)
        yield bytes([at, TYPES[at].roots[case.indexes], 0]) + case.value


TARGETS = [
    Target(
        name="kernel protobuf messages",
        seeds=lambda: list(_message_seeds()),
        run=messages,
        memory_bytes=8 << 20,
        processor_s=0.2,
        share=2,
    ),
    Target(
        name="kernel protobuf columns",
        seeds=lambda: list(PROTOBUF.column_seeds(_column_values())),
        run=PROTOBUF.hostile_columns,
        memory_bytes=1 << 20,
        short_inputs=500,
    ),
    Target(
        name="kernel protobuf check",
        seeds=lambda: list(_checked_seeds()),
        run=checked_messages,
        memory_bytes=1 << 20,
        short_inputs=750,
    ),
    Target(
        name="kernel protobuf types",
        seeds=lambda: [
            bytes([2, 1, 0, 1, 1, 1, 0]) + b"\x0a\2\x0a\0",
            bytes([3, 2, 0, 1, 2, 1, 2, 1, 2, 1, 0]) + b"\x0b\x0c",
        ],
        run=hostile_types,
        memory_bytes=1 << 20,
        short_inputs=250,
    ),
]
