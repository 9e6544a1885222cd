"""Protobuf messages as typed columns: messages of several schemas, and columns that a file may hold."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa

from bearlake.errors import Corrupt, TooLarge
from bearlake.kernel import TypedOutcome, TypedSource, decode_protobuf, encode_protobuf
from bearlake.table.typed import codec, protobuf
from bearlake.table.typed.model import SchemaError, TypedColumns
from fixtures.protobuf_cases import CASES, PROTO2, PROTO3, files_of
from fuzz.target import Choices, Target, outcome

ERRORS = (Corrupt, TooLarge, ValueError)
PATHS = [(PROTO3, 0), (PROTO2, 0), (PROTO2, 3), (PROTO2, 5), (PROTO2, 2), (PROTO2, 4)]
BYTES_MAX = 1 << 20


def _all_columns() -> Iterator[TypedColumns]:
    for levels_max in (16, 1):
        for schema, index in PATHS:
            yield protobuf.columns_of(files_of(schema), (index,), levels_max=levels_max)


COLUMNS = list(_all_columns())


def _offsets(ends: list[int]) -> bytes:
    return b"".join(end.to_bytes(4, "little") for end in (0, *ends))


def messages(data: bytes) -> object:
    """Decode messages with and without the proof, which agree; encode the rows."""
    choices = Choices(data)
    columns, limit = choices.of(COLUMNS), choices.of((BYTES_MAX, BYTES_MAX, 200, 2000))
    skip, cuts = choices.of((0, 0, 0, 1, 5)), [choices.byte() for _ in range(choices.byte() % 4)]
    content = choices.rest
    ends = [*sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    arguments = (None, _offsets(ends), content, 0, len(ends), skip)
    answers = [
        outcome(ERRORS, decode_protobuf, columns.nodes, columns.wires, *arguments, is_verified, limit)
        for is_verified in (0, 1)
    ]
    assert answers[0] == answers[1], f"marks {answers[0]!r:.300}, proof {answers[1]!r:.300}"
    statuses, slots = answers[1]
    if isinstance(statuses, type):
        return statuses.__name__
    again = outcome(
        ERRORS,
        encode_protobuf,
        columns.nodes,
        columns.wires,
        [TypedSource(0, length, *buffers) for length, _, *buffers in slots],
        b"\0\1",
    )
    found = [TypedOutcome(status & 255).name for status in memoryview(statuses).cast("i")]
    return found, type(again[0]).__name__


def hostile_columns(data: bytes) -> object:
    """Encode columns that a Parquet file holds: the input has their sizes, then their bytes."""
    choices = Choices(data)
    columns = choices.of(COLUMNS)
    heads = [(choices.byte() % 3, choices.byte() % 40, [choices.byte() for _ in range(3)]) for _ in columns.nodes]
    rest, at = choices.rest, 0
    sources = []
    for start, length, sizes in heads:
        buffers: list[bytes | None] = []
        for size in sizes:
            buffers.append(None if size == 0xFF else rest[at : at + size])
            at += 0 if size == 0xFF else size
        sources.append(TypedSource(start, length, *buffers))
    answer = outcome(ERRORS, encode_protobuf, columns.nodes, columns.wires, sources, b"")
    return answer[1][:30] if isinstance(answer[0], type) else "encoded"


def descriptors(data: bytes) -> object:
    """Map descriptors that a file may hold: the input has the last file's, and decode a few bytes by them."""
    choices = Choices(data)
    levels, width = choices.of((16, 16, 2, 1)), choices.of((1000, 1000, 20, 3))
    index, others = choices.byte(), files_of(PROTO2)[:-1]
    columns = protobuf.columns_of([*others, choices.rest], (index,), levels_max=levels, columns_max=width)
    decoded = codec.decode(columns, pa.array([b"", b"\x08\x01", b"\x12\x02\x08\x01"], pa.binary()), is_verified=True)
    decoded.struct.validate(full=True)
    return sorted({column.type.partition("(")[0] for column in columns.fields}), decoded.is_exact.to_pylist()


def _message_seeds() -> Iterator[bytes]:
    for case in CASES:
        yield bytes([PATHS.index((case.schema, *case.indexes)), 0, 0, 0]) + case.value


def _column_seeds() -> Iterator[bytes]:
    random = Random(1)
    for at, columns in enumerate(COLUMNS):
        chosen = [case.value for case in CASES if (case.schema, *case.indexes) == PATHS[at % len(PATHS)]]
        parts = random.choices(chosen, k=2)
        ends = [len(parts[0]), len(parts[0]) + len(parts[1])]
        _, slots = decode_protobuf(
            columns.nodes, columns.wires, None, _offsets(ends), b"".join(parts), 0, 2, 0, 0, BYTES_MAX
        )
        buffers: list[list[Any]] = [[None if part is None else bytes(part) for part in own[2:]] for own in slots]  # type: ignore[arg-type]
        heads = [
            bytes([0, column.length, *(0xFF if part is None else len(part) for part in own)])
            for column, own in zip(slots, buffers, strict=True)
        ]
        yield bytes([at]) + b"".join(heads) + b"".join(part or b"" for own in buffers for part in own)


TARGETS = [
    Target(
        name="typed messages",
        seeds=lambda: list(_message_seeds()),
        run=messages,
        memory_bytes=8 << 20,
        processor_s=0.2,
    ),
    Target(
        name="typed columns of messages",
        seeds=lambda: list(_column_seeds()),
        run=hostile_columns,
        memory_bytes=1 << 20,
        short_inputs=1000,
    ),
    Target(
        name="typed descriptors",
        seeds=lambda: (
            [bytes([0, 0, index]) + files_of(PROTO2)[-1] for index in range(6)] + [bytes(3) + files_of(PROTO3)[-1]]
        ),
        run=descriptors,
        errors=(SchemaError,),
        memory_bytes=32 << 20,
        processor_s=0.3,
        short_inputs=1000,
    ),
]
