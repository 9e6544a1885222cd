"""The native codec of typed columns and the Python one agree on every input, hostile ones included."""

import json
from random import Random
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from bearlake.errors import Corrupt
from bearlake.kernel import TypedKind, TypedNode, TypedOutcome, TypedSource, fallback
from bearlake.kernel.typed.avro_reader import AvroReader
from bearlake.table.typed import mapping
from bearlake.table.typed.model import SchemaType, TypedColumns
from fixtures.avro_cases import CASES, NANS
from fixtures.avro_random import AvroRandom
from fixtures.typed_kernels import by_index, column, outcome, plain, sources

SETTINGS = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BYTES_MAX = 2**31 - 1


def decoded(
    module: ModuleType,
    nodes: Any,
    values: list[bytes | None],
    *,
    skip: int = 0,
    is_verified: int = 1,
    limit: int = BYTES_MAX,
) -> Any:
    return plain(outcome(module.decode_avro, nodes, *column(values), 0, len(values), skip, is_verified, limit))


def agree(native: ModuleType, nodes: Any, values: list[bytes | None], **options: int) -> Any:
    """Decode and encode with both kernels; return the rows' statuses, or the error."""
    ours, theirs = (decoded(module, nodes, values, **options) for module in (native, fallback))
    assert ours == theirs
    statuses, slots = theirs
    if isinstance(statuses, type):
        return theirs
    columns = sources(slots)
    by_text = plain(outcome(fallback.encode_avro, nodes, columns, b"ab"))
    assert plain(outcome(native.encode_avro, nodes, columns, b"ab")) == by_text
    columns = [by_index(Random(len(values)), own) for own in columns]
    for module in (native, fallback):
        assert plain(outcome(module.encode_avro, nodes, columns, b"ab")) == by_text
    return memoryview(statuses).cast("i").tolist()


def columns_of(schema: Any) -> TypedColumns:
    return mapping.columns_of(SchemaType.AVRO, json.dumps(schema))


def test_both_decode_every_case_alike(native: ModuleType) -> None:
    for case in [*CASES, *NANS]:
        nodes = columns_of(case.schema).nodes
        (status,) = agree(native, nodes, [case.value])
        assert status & 255 == case.outcome
        agree(native, nodes, [case.value, None, case.value[:-1], b"x" + case.value, case.value], skip=0)
        agree(native, nodes, [case.value, None, case.value[:-1], b"x" + case.value, case.value], skip=1, is_verified=0)


@SETTINGS
@given(random=st.randoms(use_true_random=False), count=st.integers(0, 30))
def test_both_decode_random_values_alike(native: ModuleType, random: Random, count: int) -> None:
    made = AvroRandom(random)
    schema = made.record()
    values: list[bytes | None] = [made.value(schema) for _ in range(count)]

    statuses = agree(native, columns_of(schema).nodes, values)

    assert all(status & 255 < TypedOutcome.TRUNCATED or status & 255 == TypedOutcome.COUNT for status in statuses)


def test_both_decode_spoiled_values_alike(native: ModuleType) -> None:
    random = Random(19)
    for _ in range(150):
        made = AvroRandom(random)
        schema = made.record(4)
        nodes = mapping.columns_of(SchemaType.AVRO, json.dumps(schema), levels_max=random.choice((1, 2, 16))).nodes
        values: list[bytes | None] = [None]
        for _ in range(random.randrange(20)):
            value = made.value(schema)
            values.append(made.spoiled(value) if random.random() < 0.7 else value)
        random.shuffle(values)
        agree(
            native, nodes, values, skip=random.choice((0, 0, 1)), limit=random.choice((BYTES_MAX, BYTES_MAX, 300, 3000))
        )


@pytest.mark.parametrize("row_count", [1, 63, 64, 65, 66, 130, 131])
def test_both_prove_every_row_of_long_columns(native: ModuleType, row_count: int) -> None:
    nodes = columns_of({"type": "array", "items": ["null", "string"]}).nodes
    values: list[bytes | None] = [
        b"\2\2\2a\0" if at % 3 else b"\2\0\2\0\0" if at % 2 else b"\3" for at in range(row_count)
    ]

    statuses = agree(native, nodes, values)

    expected = (TypedOutcome.EXACT, TypedOutcome.FORM, TypedOutcome.TRUNCATED)
    assert [status & 255 for status in statuses] == [
        expected[0 if at % 3 else 1 if at % 2 else 2] for at in range(row_count)
    ]


def test_the_proof_does_not_trust_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = columns_of({"type": "string", "logicalType": "uuid"}).nodes
    value = b"\x48a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    right = vars(AvroReader)["_uuid"]
    monkeypatch.setattr(AvroReader, "_uuid", lambda reader, index: right(reader, index)[::-1])

    assert decoded(fallback, nodes, [value], is_verified=0)[0] == bytes(4)
    assert decoded(fallback, nodes, [value], is_verified=1)[0] == bytes([TypedOutcome.FORM, 0, 0, 0])


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
    for _ in range(150):
        made = AvroRandom(random)
        schema = made.record(4)
        nodes = columns_of(schema).nodes
        values: list[bytes | None] = [made.value(schema) for _ in range(random.randrange(1, 9))]
        _, slots = decoded(fallback, nodes, values)
        for _ in range(5):
            hostile = sources(slots, start=random.choice((0, 0, 0, 1)))
            at = random.randrange(len(hostile))
            change = hostile[at]
            length = change.length + random.choice((0, 0, 0, 1))
            validity, offsets, content = (spoil(random, part) for part in change[2:5])  # type: ignore[arg-type]
            hostile[at] = TypedSource(change.start, length, validity, offsets, content)
            answers = [plain(outcome(module.encode_avro, nodes, hostile, b"")) for module in (native, fallback)]
            assert answers[0] == answers[1]
            refused += answers[0][0] is Corrupt
    assert refused > 20


NODES = (TypedNode(TypedKind.RECORD, children=(1,)), TypedNode(TypedKind.INT))


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (TypedNode(TypedKind.INT),),
        (TypedNode(99),),
        (TypedNode(TypedKind.RECORD),),
        (TypedNode(TypedKind.RECORD, children=(0,)),),
        (TypedNode(TypedKind.RECORD, children=(9,)),),
        (TypedNode(TypedKind.RECORD, children=(1, 1)), TypedNode(TypedKind.INT)),
        (TypedNode(TypedKind.RECORD, children=(1,)), TypedNode(TypedKind.INT, 2)),
        (TypedNode(TypedKind.RECORD, children=(1,)), TypedNode(TypedKind.FIXED)),
        (TypedNode(TypedKind.RECORD, children=(1,)), TypedNode(TypedKind.DECIMAL, precision=39)),
        (TypedNode(TypedKind.RECORD, children=(1,)), TypedNode(TypedKind.ARRAY)),
        (TypedNode(TypedKind.RECORD, children=(1,)), TypedNode(TypedKind.MAP, children=(2, 3)), *NODES[1:] * 2),
        tuple(TypedNode(TypedKind.RECORD, children=(at + 1,)) for at in range(70)) + NODES[1:],
    ],
)
def test_schemas_that_are_no_trees_are_refused_alike(native: ModuleType, nodes: Any) -> None:
    for function, arguments in (("decode_avro", (None, bytes(4), b"", 0, 0, 0, 0, 9)), ("encode_avro", ([], b""))):
        ours, theirs = (outcome(getattr(module, function), nodes, *arguments) for module in (native, fallback))
        assert ours == theirs
        assert ours[0] is ValueError


@pytest.mark.parametrize(
    "arguments",
    [
        (None, bytes(4), b"", 0, 1, 0, 0, 9),
        (None, b"", b"", 0, 1, 0, 0, 9),
        (None, b"\0\0\0\0\1\0\0\0", b"", 0, 1, 0, 0, 9),
        (None, b"\1\0\0\0\0\0\0\0", b"x", 0, 1, 0, 0, 9),
        (None, b"\0\0\0\0\xff\xff\xff\xff", b"x", 0, 1, 0, 0, 9),
        (b"", bytes(8), b"", 0, 1, 0, 0, 9),
        (None, bytes(8), b"", 1, 0, 0, 0, 9),
        (None, bytes(8), b"", -1, 0, 0, 0, 9),
        (None, bytes(8), b"", 0, 1, -1, 0, 9),
        (None, bytes(8), b"", 0, 1, 0, 0, -1),
        (None, bytes(8), b"", 0, 1, 0, 0, 2**31),
    ],
)
def test_values_that_are_no_column_are_refused_alike(native: ModuleType, arguments: Any) -> None:
    ours, theirs = (outcome(module.decode_avro, NODES, *arguments) for module in (native, fallback))

    assert ours == theirs
    assert ours[0] is ValueError


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [TypedSource(0, 1, None, None, None)],
        [TypedSource(0, 1, None, None, None), TypedSource(0, 1, None, None, b"abc")],
        [TypedSource(0, 2, None, None, None), TypedSource(0, 1, None, None, b"abcd")],
        [TypedSource(0, 1, b"", None, None), TypedSource(0, 1, None, None, b"abcd")],
        [TypedSource(-1, 1, None, None, None), TypedSource(0, 1, None, None, b"abcd")],
        [TypedSource(0, -1, None, None, None), TypedSource(0, 1, None, None, b"abcd")],
        [TypedSource(2**31 - 1, 1, None, None, None), TypedSource(0, 1, None, None, b"abcd")],
    ],
)
def test_columns_without_their_slots_are_refused_alike(native: ModuleType, columns: Any) -> None:
    ours, theirs = (outcome(module.encode_avro, NODES, columns, b"") for module in (native, fallback))

    assert ours == theirs
    assert ours[0] is ValueError
