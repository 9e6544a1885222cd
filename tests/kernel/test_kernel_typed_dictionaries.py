"""Texts by index: both kernels agree on every column with a dictionary, hostile ones included, and read no index or text outside of it.

That columns with dictionaries give the bytes of columns without is in the differential tests of each format.
"""

import json
from random import Random
from types import ModuleType
from typing import Any

import pytest

from bearlake.errors import Corrupt
from bearlake.kernel import TypedKind, TypedNode, TypedSource, fallback
from bearlake.table.typed import mapping
from bearlake.table.typed.model import SchemaType
from fixtures.avro_random import AvroRandom
from fixtures.typed_kernels import by_index, column, outcome, plain, sources

BYTES_MAX = 2**31 - 1
NODES = (TypedNode(TypedKind.RECORD, children=(1,)), TypedNode(TypedKind.STRING))
OPTIONAL = (NODES[0], TypedNode(TypedKind.STRING, null_branch=0))
ENUM = (NODES[0], TypedNode(TypedKind.ENUM, symbols=(b"RED", b"BLUE")))
OPAQUE = (NODES[0], TypedNode(TypedKind.OPAQUE, children=(2,)), TypedNode(TypedKind.LONG))


def int32s(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)


def both(native: ModuleType, nodes: Any, columns: list[TypedSource]) -> Any:
    """What both kernels return."""
    ours, theirs = (plain(outcome(module.encode_avro, nodes, columns, b"")) for module in (native, fallback))
    assert ours == theirs
    return theirs


def rows(text: TypedSource) -> list[TypedSource]:
    return [TypedSource(0, text.length, None, None, None), text]


def words(*indices: int, **change: Any) -> TypedSource:
    """Slots with texts of the dictionary `a`, `bc`, `def`."""
    source = TypedSource(0, len(indices), None, int32s(0, 1, 3, 6), b"abcdef", int32s(*indices), 3)
    return source._replace(**change)


@pytest.mark.parametrize("times", [1, 50])
def test_texts_of_a_dictionary_are_written_where_their_indices_are(native: ModuleType, times: int) -> None:
    _, content = both(native, NODES, rows(words(*[2, 0, 1, 0] * times)))

    assert content == b"\x06def\x02a\x04bc\x02a" * times


@pytest.mark.parametrize("times", [1, 50])
def test_nulls_of_an_optional_text_need_no_index(native: ModuleType, times: int) -> None:
    column = words(*[2, -1, 7, 1] * times, validity=b"\x99" * 25)

    _, content = both(native, OPTIONAL, rows(column))

    assert content == b"\x02\x06def\x00\x00\x02\x04bc" * times


def test_a_column_may_begin_after_other_slots(native: ModuleType) -> None:
    _, content = both(native, NODES, rows(words(9, 9, 1, 2, 2, 0, start=2, length=4)))

    assert content == b"\x04bc\x06def\x06def\x02a"


@pytest.mark.parametrize("times", [1, 50])
def test_only_a_used_text_must_be_a_symbol(native: ModuleType, times: int) -> None:
    colors = {"offsets": int32s(0, 3, 7, 10), "content": b"REDBLUExyz"}

    _, content = both(native, ENUM, rows(words(*[1, 0] * times, **colors)))
    refused = both(native, ENUM, rows(words(*[1, 0] * times, 2, **colors)))

    assert content == b"\x02\x00" * times
    assert refused == (Corrupt, f"row {2 * times} of the typed columns is impossible")


def test_values_of_opaque_nodes_may_be_empty_and_have_a_dictionary(native: ModuleType) -> None:
    _, content = both(native, OPAQUE, rows(words(0, 1, 2, 1, 1, offsets=int32s(0, 0, 2, 3), content=b"\x80\x01\x02")))

    assert content == b"\x80\x01\x02\x80\x01\x80\x01"


@pytest.mark.parametrize("times", [1, 50])
def test_texts_that_overlap_are_written_as_their_offsets_say(native: ModuleType, times: int) -> None:
    content = bytes(range(200))
    entries = [1, 0, 2, 0]  # the offsets go back: text 0 and text 2 are the whole content

    found = both(native, NODES, rows(words(*entries * times, offsets=int32s(0, 200, 0, 200), content=content)))
    _, written = both(native, NODES, rows(words(*[2, 0] * times, offsets=int32s(0, 200, 0, 200), content=content)))

    assert found[0] is Corrupt
    assert written == (b"\x90\x03" + content) * 2 * times


def test_indices_and_offsets_outside_of_the_dictionary_are_corrupt(native: ModuleType) -> None:
    for hostile in (
        words(0, 3),
        words(0, -1),
        words(0, 2**31 - 1),
        words(*[0] * 9, -(2**31)),
        words(0, 2, content=b"abcde"),
        words(0, 1, offsets=int32s(0, 1, 9, 6)),
        words(0, 1, offsets=int32s(0, 1, -1, 6)),
        words(0, 0, entry_count=0, offsets=None),
    ):
        answer = both(native, NODES, rows(hostile))
        assert answer[0] is Corrupt, hostile


@pytest.mark.parametrize(
    "columns",
    [
        rows(words(0, 1, indices=int32s(0))),
        rows(words(0, 1, indices=b"")),
        rows(words(0, 1, start=1)),
        rows(words(0, 1, entry_count=4)),
        rows(words(0, 1, entry_count=-1)),
        rows(words(0, 1, entry_count=2**31 - 1)),
        rows(words(0, 1, entry_count=2**63 - 1)),
        rows(words(0, 1, offsets=None)),
        [TypedSource(0, 1, None, None, None, int32s(0), 0), words(0)],
    ],
)
def test_columns_without_their_indices_or_texts_are_refused_alike(native: ModuleType, columns: Any) -> None:
    assert both(native, NODES, columns)[0] is ValueError


def spoil(random: Random, content: Any) -> Any:
    if not isinstance(content, bytes) or random.random() < 0.5:
        return content
    out = bytearray(content)
    for _ in range(random.randrange(1, 3)):
        if out:
            out[random.randrange(len(out))] = random.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return bytes(out[: len(out) - (random.random() < 0.05)])


def test_both_encode_spoiled_dictionaries_alike(native: ModuleType) -> None:
    random = Random(22)
    refused = 0
    for _ in range(150):
        made = AvroRandom(random)
        schema = made.record(4)
        nodes = mapping.columns_of(SchemaType.AVRO, json.dumps(schema)).nodes
        values: list[bytes | None] = [made.value(schema) for _ in range(random.randrange(1, 9))]
        _, slots = plain(fallback.decode_avro(nodes, *column(values), 0, len(values), 0, 1, BYTES_MAX))
        columns = [by_index(random, own) for own in sources(slots, start=random.choice((0, 0, 0, 1)))]
        for _ in range(5):
            hostile = [
                TypedSource(own.start, own.length, *(spoil(random, part) for part in own[2:])) for own in columns
            ]
            refused += both(native, nodes, hostile)[0] is Corrupt
    assert refused > 20
