"""Texts that repeat are read as dictionaries, and consumers get the bytes that were produced, whatever a row group looks like (I6)."""

import json
from random import Random
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from bearlake.errors import Corrupt
from bearlake.metadata.model import ObjectRef
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table.dictionaries import REPEATS_MIN, dictionary_columns
from bearlake.table.footer import Footer
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.sparse import SparseFile
from bearlake.table.typed import codec, mapping
from bearlake.table.typed.model import SchemaType
from bearlake.table.typed_rows import completed, restored
from fixtures.avro_cases import number, text
from fixtures.avro_random import AvroRandom
from fixtures.typed_dictionaries import with_dictionaries
from fixtures.typed_orders import ORDER, order, value
from fixtures.typed_values import ValueFile, framed, keyed, plan_of, served, writer_schema

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
SHOP = order(
    ("id", "int"),
    ("note", ["null", "string"]),
    ("color", COLOR),
    ("items", {"type": "array", "items": ITEM}),
    ("tags", {"type": "map", "values": "string"}),
    ("choice", ["long", "string"]),
)
TEXT_PATHS = [
    "note",
    "color",
    "items.list.element.sku",
    "tags.key_value.key",
    "tags.key_value.value",
    "choice.string",
]


def shop_value(at: int, unique: str = "") -> bytes:
    """A value in `SHOP`; all texts with `unique` are others in each value."""
    out = number(at) + (number(0) if at % 3 == 0 else number(1) + text(f"note {at % 4}{unique}"))
    out += number(at % 2) + number(at % 5)
    for item in range(at % 5):
        out += text(f"SKU-{(at + item) % 7}{unique}")
    out += number(0) if at % 5 else b""
    out += number(1) + text(f"tag {at % 3}{unique}") + text(f"value {at % 2}{unique}") + number(0)
    return out + (number(0) + number(at) if at % 3 == 1 else number(1) + text(f"choice {at % 5}{unique}"))


async def opened(file: ValueFile) -> tuple[SparseFile, Footer]:
    """A data file in memory."""
    store = MemoryObjectStore()
    ref = await file.put(store)
    footer = await DataFileReader(store, DataFileSettings(thread_count=0)).footer(ref)
    return SparseFile(ref.size, [ByteRange(0, ref.size)], [memoryview(b"".join(file.finished.parts))]), footer


async def as_dictionaries(file: ValueFile, group: int = 0) -> list[str]:
    """The paths of the columns that are read as dictionaries."""
    found, footer = await opened(file)
    assert footer.typed is not None
    return dictionary_columns(found, footer, group, footer.typed.typed_columns)


async def is_served_unchanged(file: ValueFile) -> bool:
    store = MemoryObjectStore()
    return await served(store, await file.put(store)) == b"".join(file.batches)


async def test_texts_that_repeat_are_dictionaries_at_every_place_of_a_value() -> None:
    values = [framed(7, shop_value(at)) for at in range(200)]

    file = ValueFile(plan_of({7: writer_schema(SHOP)}), [[values[:120], values[120:]]])

    assert await as_dictionaries(file) == TEXT_PATHS
    assert await is_served_unchanged(file)


async def test_texts_that_differ_are_read_as_texts() -> None:
    values = [framed(7, shop_value(at, unique=f" of {at}")) for at in range(200)]

    file = ValueFile(plan_of({7: writer_schema(SHOP)}), [[values]])

    assert await as_dictionaries(file) == ["color"]
    assert await is_served_unchanged(file)


async def test_a_column_that_its_writer_gave_up_to_encode_by_index_is_read_as_texts() -> None:
    different = 500
    texts = [f"{at}".zfill(4096) for at in range(different)]  # 2 MiB; Arrow's writer gives up at 1 MiB
    values = [framed(7, value(at, texts[at % different])) for at in range(different * REPEATS_MIN)]

    file = ValueFile(plan_of({7: writer_schema(ORDER)}), [[values]])

    _, footer = await opened(file)
    group = footer.metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert [column.path_in_schema for column in columns if column.has_dictionary_page][-1] == "note"
    assert await as_dictionaries(file) == []
    assert await is_served_unchanged(file)


async def test_every_row_group_is_decided_for_itself() -> None:
    different = [framed(7, value(at, f"{at}")) for at in range(50)]
    equal = [framed(7, value(at, "same")) for at in range(50)]

    file = ValueFile(plan_of({7: writer_schema(ORDER)}), [[different], [equal]])

    assert [await as_dictionaries(file, group) for group in (0, 1)] == [[], ["note"]]
    assert await is_served_unchanged(file)


async def test_rows_of_two_schemas_and_rows_that_keep_their_bytes_share_dictionaries() -> None:
    other = order(("note", ["null", "string"]), ("items", {"type": "array", "items": ITEM}))
    overlong = b"\x82\x00" + value(1)[1:]  # the int 1 in two bytes
    values: list[bytes | None] = []
    for at in range(60):
        values += [framed(7, shop_value(at)), framed(8, number(1) + text("note 1") + number(1) + text("SKU-1") + b"\0")]
        values += [framed(7, overlong), None, b"", framed(9, b"x"), framed(7, shop_value(at)[:-1])]

    file = ValueFile(plan_of({7: writer_schema(SHOP), 8: writer_schema(other)}), [[values]])

    assert set(TEXT_PATHS) <= set(await as_dictionaries(file))
    assert await is_served_unchanged(file)


@pytest.mark.parametrize("elides", [False, True])
async def test_keys_are_given_back_from_dictionaries_with_and_without_the_values(elides: bool) -> None:
    plan = keyed(plan_of({7: writer_schema(ORDER)}, elides=elides), {8: writer_schema(ORDER)})
    values = [framed(7, value(at, "same")) for at in range(50)]

    file = ValueFile(plan, [[values]], key_at=lambda offset: framed(8, value(offset % 5, f"key {offset % 3}")))

    assert await as_dictionaries(file) == ["note", "note_2"]
    assert await is_served_unchanged(file)


async def test_complete_rows_are_those_that_are_restored_from_texts() -> None:
    values = [framed(7, shop_value(at)) for at in range(200)]
    file = ValueFile(plan_of({7: writer_schema(SHOP)}), [[values]])
    _, footer = await opened(file)
    assert footer.typed is not None
    content = pa.BufferReader(b"".join(file.finished.parts))
    texts = pa.parquet.ParquetFile(content).read_row_group(0)
    by_index = pa.parquet.ParquetFile(content, read_dictionary=TEXT_PATHS).read_row_group(0)

    found = completed(by_index, footer.typed, 0)

    assert found["_value"].to_pylist() == values
    assert found.equals(restored(texts, footer.typed, 0).select(found.column_names))


@settings(max_examples=40, deadline=None)
@given(random=st.randoms(use_true_random=False))
async def test_any_schema_gives_its_values_back(random: Random) -> None:
    made = AvroRandom(random)
    schema = made.record(4)
    drawn = [made.value(schema) for _ in range(4)]
    values: list[bytes | None] = [framed(7, random.choice(drawn)) for _ in range(60)]

    file = ValueFile(plan_of({7: writer_schema(schema)}), [[values]])

    assert await is_served_unchanged(file)


def test_a_dictionary_of_other_indices_or_with_nulls_becomes_texts() -> None:
    columns = mapping.columns_of(SchemaType.AVRO, json.dumps(order(("note", ["null", "string"]))))
    notes = pa.array(["a", None, "b", "a"])
    expected = codec.encode(columns, pa.StructArray.from_arrays([notes], ["note"]))
    dictionaries = [
        pa.DictionaryArray.from_arrays(pa.array([1, 0, 2, 1], pa.int32()), pa.array([None, "a", "b"])),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.int8()), pa.array(["a", "b"])),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.int32()), pa.array(["x", "a", "b"]).slice(1)),
        pa.DictionaryArray.from_arrays(
            pa.array([9, 0, None, 1, 0], pa.int32()).slice(1), pa.array(["a", "b"]), safe=False
        ),
    ]

    for dictionary in dictionaries:
        assert codec.encode(columns, pa.StructArray.from_arrays([dictionary], ["note"])) == expected


def test_a_slice_of_rows_is_encoded_from_its_own_indices() -> None:
    columns = mapping.columns_of(SchemaType.AVRO, json.dumps(SHOP))
    values = [shop_value(at) for at in range(40)]
    struct = with_dictionaries(codec.decode(columns, pa.array(values, pa.binary())).struct)

    assert codec.encode(columns, struct.slice(11, 20)).to_pylist() == values[11:31]


@pytest.mark.parametrize("seed", range(60))
async def test_damaged_columns_are_corrupt_or_harmless(seed: int) -> None:
    random = Random(seed)
    values = [framed(7, shop_value(at)) for at in range(100)]
    file = ValueFile(plan_of({7: writer_schema(SHOP)}), [[values]])
    _, footer = await opened(file)
    raw = bytearray(b"".join(file.finished.parts))
    group = footer.metadata.row_group(0)
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    column = columns[random.choice(TEXT_PATHS)]
    for _ in range(random.randrange(1, 4)):
        raw[column.dictionary_page_offset + random.randrange(column.total_compressed_size)] ^= 1 << random.randrange(8)
    store = MemoryObjectStore()
    await store.put(file.finished.file.key, [bytes(raw)])

    answer: Any
    try:
        answer = await served(
            store, ObjectRef(file.finished.file.key, len(raw), (await file.put(MemoryObjectStore())).kind)
        )
    except Corrupt as error:
        answer = error

    assert isinstance(answer, Corrupt) or answer == b"".join(file.batches)
