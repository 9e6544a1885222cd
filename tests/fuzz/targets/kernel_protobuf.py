"""Protobuf messages as typed columns in the native kernel and in its Python twin: messages of several schemas, and columns of files."""

from collections.abc import Iterator
from random import Random
from typing import Any

from bearlake.kernel import TypedOutcome, TypedSource, fallback
from bearlake.table.typed import protobuf
from bearlake.table.typed.model import TypedColumns
from fixtures.protobuf_cases import CASES, PROTO2, PROTO3, files_of
from fuzz.target import Choices, Target, exact, outcome
from fuzz.targets.kernel import ERRORS, native

ONEOFS = """syntax = "proto3"; message M { oneof o { L a = 1; L b = 2; int32 c = 3; } R r = 4; repeated L d = 5; }
  message L { repeated int32 n = 1; map<string, N> m = 2; L2 l = 3; } message L2 { repeated string s = 1; }
  message N { repeated N n = 1; repeated L2 l = 2; } message R { R r = 1; string s = 2; }"""
"""Lists in members of a oneof, in pieces and in each other."""
PATHS = [(PROTO3, 0), (PROTO2, 0), (PROTO2, 3), (PROTO2, 5), (PROTO2, 2), (PROTO2, 4), (ONEOFS, 0)]
BYTES_MAX = 1 << 20


def _all_columns() -> Iterator[TypedColumns]:
    for levels_max in (16, 1):
        for schema, index in PATHS:
            yield protobuf.columns_of(files_of(schema), (index,), levels_max=levels_max)


COLUMNS = list(_all_columns())


def _offsets(ends: list[int]) -> bytes:
    return b"".join(end.to_bytes(4, "little") for end in (0, *ends))


def _plain(answer: Any) -> Any:
    if isinstance(answer, memoryview):
        return bytes(answer)
    return [_plain(part) for part in answer] if isinstance(answer, list | tuple) else answer


def _decoded(columns: TypedColumns, ends: list[int], content: bytes, skip: int, is_verified: int, limit: int) -> Any:
    """Decode the values with both kernels."""
    answers = []
    for module, hold in ((native, exact), (fallback, bytes)):
        arguments = (None, hold(_offsets(ends)), hold(content), 0, len(ends), skip, is_verified, limit)
        answers.append(_plain(outcome(ERRORS, module.decode_protobuf, columns.nodes, columns.wires, *arguments)))
    assert answers[0] == answers[1], f"native {answers[0]!r:.300}, Python {answers[1]!r:.300}"
    return answers[1]


def _encoded(columns: TypedColumns, sources: list[TypedSource]) -> Any:
    """Encode the columns with both kernels."""
    answers = []
    for module, hold in ((native, exact), (fallback, bytes)):
        held = [
            TypedSource(start, length, *(buffer if buffer is None else hold(buffer) for buffer in buffers))  # type: ignore[arg-type]
            for start, length, *buffers in sources
        ]
        answers.append(
            _plain(outcome(ERRORS, module.encode_protobuf, columns.nodes, columns.wires, held, hold(b"\0\1")))
        )
    assert answers[0] == answers[1], f"native {answers[0]!r:.300}, Python {answers[1]!r:.300}"
    return answers[1]


def messages(data: bytes) -> object:
    """Decode messages with and without the proof, which agree; encode the rows."""
    choices = Choices(data)
    columns, limit = choices.of(COLUMNS), choices.of((BYTES_MAX, BYTES_MAX, 200, 2000))
    skip, cuts = choices.of((0, 0, 0, 1, 5)), [choices.byte() for _ in range(choices.byte() % 4)]
    content = choices.rest
    ends = [*sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    answers = [_decoded(columns, ends, content, skip, is_verified, limit) for is_verified in (0, 1)]
    assert answers[0] == answers[1], f"marks {answers[0]!r:.300}, proof {answers[1]!r:.300}"
    statuses, slots = answers[1]
    if isinstance(statuses, type):
        return statuses.__name__
    again = _encoded(columns, [TypedSource(0, length, *buffers) for length, _, *buffers in slots])
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
    answer = _encoded(columns, sources)
    return answer[1][:30] if isinstance(answer[0], type) else "encoded"


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


def _column_seeds() -> Iterator[bytes]:
    random = Random(1)
    for at, columns in enumerate(COLUMNS):
        chosen = [case.value for case in CASES if (case.schema, *case.indexes) == PATHS[at % len(PATHS)]] or [b""]
        parts = random.choices(chosen, k=2)
        ends = [len(parts[0]), len(parts[0]) + len(parts[1])]
        arguments = (None, _offsets(ends), b"".join(parts), 0, 2, 0, 0, BYTES_MAX)
        _, slots = fallback.decode_protobuf(columns.nodes, columns.wires, *arguments)
        buffers: list[list[Any]] = [[None if part is None else bytes(part) for part in own[2:]] for own in slots]  # type: ignore[arg-type]
        heads = [
            bytes([0, column.length, *(0xFF if part is None else len(part) for part in own)])
            for column, own in zip(slots, buffers, strict=True)
        ]
        yield bytes([at]) + b"".join(heads) + b"".join(part or b"" for own in buffers for part in own)


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
        seeds=lambda: list(_column_seeds()),
        run=hostile_columns,
        memory_bytes=1 << 20,
        short_inputs=2000,
    ),
]
