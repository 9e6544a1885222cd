"""The native reader of JSON and the Python one agree on every value, hostile ones included."""

import json
from random import Random
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from bearlake.errors import TooLarge
from bearlake.kernel import TypedKind, TypedNode, fallback
from bearlake.table.typed import declared, mapping
from bearlake.table.typed.model import SchemaType
from fixtures.declared_cases import CASES as DECLARED_CASES
from fixtures.declared_cases import COLUMNS
from fixtures.json_cases import CASES, SCHEMA
from fixtures.json_random import schemas, values
from fixtures.typed_kernels import column, outcome, plain

SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
BYTES_MAX = 2**31 - 1
LEAVES = (TypedNode(TypedKind.RECORD, children=(1,), symbols=(b"a",)), TypedNode(TypedKind.LONG))
OCTETS = b'"\\{}[]:,0123456789.eE+-truefalsnl u\xc3\xa9\x00\x1f\x7f\xff/'


def nodes_of(schema: Any, *, levels_max: int = 16) -> Any:
    return mapping.columns_of(SchemaType.JSON, json.dumps(schema), levels_max=levels_max).nodes


def agree(
    native: ModuleType, nodes: Any, given_values: list[bytes | None], *, skip: int = 0, limit: int = BYTES_MAX
) -> Any:
    """Decode with both kernels; return the rows' statuses, or the error."""
    ours, theirs = (
        plain(outcome(module.decode_json, nodes, *column(given_values), 0, len(given_values), skip, limit))
        for module in (native, fallback)
    )
    assert ours == theirs
    return theirs[0] if isinstance(theirs[0], type) else memoryview(theirs[0]).cast("i").tolist()


@pytest.mark.parametrize("levels_max", [1, 2, 16])
def test_both_read_every_case_alike(native: ModuleType, levels_max: int) -> None:
    nodes = nodes_of(SCHEMA, levels_max=levels_max)
    for case in CASES:
        agree(native, nodes, [case.value, None, case.value[:-1], b"x" + case.value, case.value])
        agree(native, nodes, [case.value, None, case.value[:-1], b"x" + case.value, case.value], skip=1)


def test_both_read_every_case_of_declared_columns_alike(native: ModuleType) -> None:
    nodes = declared.columns_of(COLUMNS).nodes
    for case in DECLARED_CASES:
        agree(native, nodes, [case.value, None, case.value[:-1], b"x" + case.value, case.value])
        agree(native, nodes, [case.value, None, case.value[:-2], b"x" + case.value, case.value], skip=1)


def test_both_read_spoiled_values_of_declared_columns_alike(native: ModuleType) -> None:
    random = Random(290)
    nodes = declared.columns_of(COLUMNS).nodes
    for _ in range(400):
        spoiled: list[bytes | None] = []
        for _ in range(10):
            value = bytearray(random.choice(DECLARED_CASES).value)
            for _ in range(random.randrange(1, 4)):
                at = random.randrange(len(value) + 1)
                value[at : at + random.randrange(2)] = bytes([random.choice(OCTETS + b"=TZ-:")])
            spoiled.append(bytes(value))
        agree(native, nodes, spoiled, limit=random.choice((BYTES_MAX, BYTES_MAX, 2_000)))


@SETTINGS
@given(st.data())
def test_both_read_random_values_alike(native: ModuleType, data: st.DataObject) -> None:
    schema = data.draw(schemas())
    found = data.draw(st.lists(values(schema), max_size=20))

    agree(native, nodes_of(schema), found, limit=data.draw(st.sampled_from([BYTES_MAX, BYTES_MAX, 100, 1_000])))


def test_both_read_spoiled_cases_alike(native: ModuleType) -> None:
    random = Random(19)
    nodes = nodes_of(SCHEMA)
    short = [case.value for case in CASES if len(case.value) < 400]
    for _ in range(300):
        spoiled: list[bytes | None] = []
        for _ in range(10):
            value = bytearray(random.choice(short))
            for _ in range(random.randrange(1, 4)):
                at = random.randrange(len(value) + 1)
                value[at : at + random.randrange(2)] = bytes([random.choice(OCTETS)])
            spoiled.append(bytes(value))
        agree(native, nodes, spoiled, limit=random.choice((BYTES_MAX, BYTES_MAX, 2_000)))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 300])
def test_both_grow_lists_and_maps_alike(native: ModuleType, count: int) -> None:
    nodes = nodes_of(SCHEMA)
    numbers = ",".join(map(str, range(count)))
    structs = ",".join(f'{{"x": {at}, "z": "{at}"}}' if at % 3 else "null" for at in range(count))
    entries = ",".join(f'"k{at}": {at}.5' for at in range(count))
    long = f'{{"l": [{numbers}], "lo": [{structs}], "m": {{{entries}}}}}'

    agree(native, nodes, [long.encode(), b'{"lo": [{"x": "no"}]}', None, long.encode() * 2, long.encode()])


def test_both_refuse_columns_beyond_the_limit(native: ModuleType) -> None:
    nodes = nodes_of(SCHEMA)

    assert agree(native, nodes, [b'{"s": "' + b"x" * 5_000 + b'"}'] * 2, limit=4_000) is TooLarge
    assert agree(native, nodes, [b"{}"] * 100, limit=1_000) is TooLarge


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (TypedNode(TypedKind.LONG),),
        (TypedNode(TypedKind.RECORD),),
        (TypedNode(TypedKind.RECORD, children=(1,), symbols=(b"a", b"b")), LEAVES[1]),
        (TypedNode(TypedKind.RECORD, children=(1, 2)), LEAVES[1], LEAVES[1]),
        (TypedNode(TypedKind.RECORD, children=(0,), symbols=(b"a",)),),
        (
            TypedNode(TypedKind.RECORD, children=(1,), symbols=(b"a",)),
            TypedNode(TypedKind.RECORD, children=(2,)),
            LEAVES[1],
        ),
        (LEAVES[0], TypedNode(TypedKind.ENUM)),
        (LEAVES[0], TypedNode(TypedKind.DECIMAL)),
        (LEAVES[0], TypedNode(TypedKind.DECIMAL, precision=39)),
        (LEAVES[0], TypedNode(TypedKind.DECIMAL, precision=3, size=39)),
        (LEAVES[0], TypedNode(TypedKind.DECIMAL, precision=3, size=-1)),
        (LEAVES[0], TypedNode(TypedKind.OPAQUE)),
        (LEAVES[0], TypedNode(TypedKind.UNION, children=(2,)), LEAVES[1]),
        (LEAVES[0], TypedNode(27)),
        (LEAVES[0], TypedNode(TypedKind.MAP, children=(2, 3)), LEAVES[1], LEAVES[1]),
        (LEAVES[0], TypedNode(TypedKind.JSON, children=(0,))),
    ],
)
def test_nodes_that_are_none_of_a_json_value_are_refused_alike(native: ModuleType, nodes: Any) -> None:
    assert agree(native, nodes, [b"{}"]) is ValueError


@pytest.mark.parametrize("kind", [TypedKind.DATE, TypedKind.TIMESTAMP, TypedKind.JSON, TypedKind.LOCAL_TIMESTAMP])
def test_kinds_of_json_are_no_kinds_of_avro(kernel: ModuleType, kind: TypedKind) -> None:
    with pytest.raises(ValueError, match="not a kind of node"):
        kernel.decode_avro((LEAVES[0], TypedNode(kind)), *column([b"\2"]), 0, 1, 0, 0, BYTES_MAX)
