"""Data files with typed columns of keys: consumers get the same keys (I6), rot is found, and key compaction sees every key."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.errors import Corrupt, Unsupported
from bearlake.metadata.model import ObjectRef
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table.column_book import FORMAT_VERSION, KEYS_VERSION, decode_book, new_book, with_keys, with_schema
from bearlake.table.column_tree import Column, ids_of
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.rows import read_keyed, read_rows
from bearlake.table.sparse import SparseFile
from bearlake.table.typed_rows import merged_columns
from bearlake.table.value_typing import MissingSchemas
from bearlake.table.writer import DataFileWriter
from fixtures.avro_cases import CASES, NANS, AvroCase, number, text
from fixtures.typed_orders import ORDER, order, value
from fixtures.typed_values import LAST_ID, ValueFile, framed, keyed, plan_of, served, writer_schema

VALUES = {7: writer_schema(ORDER)}
KEYS = {8: writer_schema(order(("id", "long"), ("city", "string")))}
KEY = framed(8, number(2**40) + text("Bonn"))


def rows_of(file: ValueFile, *columns: str) -> list[dict[str, Any]]:
    table = pq.read_table(pa.BufferReader(b"".join(file.finished.parts)), columns=list(columns) or None)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


async def sparse(store: MemoryObjectStore, ref: ObjectRef) -> SparseFile:
    from bearlake.objects import ByteRange

    ranges = [ByteRange(0, ref.size)]
    return SparseFile(ref.size, ranges, await store.read(ref.key, ranges))


@pytest.mark.parametrize("case", [*CASES, *NANS], ids=lambda case: case.label)
async def test_every_avro_key_is_served_as_it_was_produced_and_compared_whole(case: AvroCase) -> None:
    store = MemoryObjectStore()
    keys = [framed(8, case.value), None, b"", framed(8, case.value)]
    plan = keyed(plan_of(VALUES), {8: writer_schema(case.schema)})

    file = ValueFile(plan, [[[framed(7, value(1)), b"raw", None, framed(7, value(2))]]], key_at=keys.__getitem__)

    ref = await file.put(store)
    assert await served(store, ref) == b"".join(file.batches)
    assert (rows_of(file, "_key")[0]["_key"] is None) == (case.outcome.name == "EXACT")
    footer = await DataFileReader(store, DataFileSettings(thread_count=0)).footer(ref)
    assert read_keyed(await sparse(store, ref), footer, 0)["_key"].to_pylist() == keys
    assert footer.key_bytes(0) == sum(len(key or b"") for key in keys)


async def test_fields_of_key_and_value_with_one_name_are_two_columns() -> None:
    store = MemoryObjectStore()
    plan = keyed(plan_of(VALUES), KEYS)

    file = ValueFile(plan, [[[framed(7, value(1, "x")), None]]], key_at=[KEY, None].__getitem__)

    assert [
        (row["id"], row["note"], row["id_2"], row["city"], row["_key"], row["_schema_id"], row["_key_schema_id"])
        for row in rows_of(file)
    ] == [(1, "x", 2**40, "Bonn", None, 7, 8), (None, None, None, None, None, None, None)]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


def test_ids_and_names_are_unique_whichever_schema_comes_first() -> None:
    fields = [Column(0, "id", "id", "long"), Column(0, "ID_2", "ID_2", "string")]
    limits = {"last_id": LAST_ID, "column_count_max": 100}
    book = with_schema(new_book(LAST_ID), 8, fields, is_key=True, **limits)
    book = with_schema(book, 7, fields, **limits)
    wider = with_schema(book, 9, [Column(0, "id", "id", "string")], is_key=True, **limits)

    assert book.key is not None
    assert [column.name for column in book.key.columns] == ["id", "ID_2"]
    assert [column.name for column in book.columns] == ["id_3", "ID_2_2"]
    assert wider.key is not None
    assert wider.key.columns[-1].name == "id__string"
    ids = [wider.schema_id, wider.error_id, wider.key.schema_id, *ids_of(wider.all_columns)]
    assert len(set(ids)) == len(ids) == len(wider.ids)
    assert max(ids) < wider.next_id
    assert decode_book(wider.encoded(), 4) == replace(wider, version=4)


def test_only_books_with_columns_of_keys_have_the_new_format() -> None:
    book = new_book(LAST_ID)
    of_keys = with_keys(book, last_id=LAST_ID)

    assert json.loads(book.encoded())["version"] == FORMAT_VERSION
    assert "key" not in json.loads(book.encoded())
    assert json.loads(of_keys.encoded())["version"] == KEYS_VERSION
    assert with_keys(of_keys, last_id=LAST_ID) == of_keys
    with pytest.raises(Unsupported):
        decode_book(of_keys.encoded().replace('"version":2', '"version":3'), 1)


async def test_keys_without_a_header_are_the_column_key_beside_values_that_stay_bytes() -> None:
    store = MemoryObjectStore()
    plan = replace(keyed(plan_of({}), {8: writer_schema("string", is_framed=False)}, schema_id=8), types_values=False)

    file = ValueFile(plan, [[[framed(7, value(1)), b"x", None]]], key_at=[text("a"), None, b"\x04a"].__getitem__)

    rows = rows_of(file)
    assert [(row["key"], row["_key"], row["_key_schema_id"]) for row in rows] == [
        ("a", None, 8),
        (None, None, None),
        (None, b"\x04a", 8),
    ]
    assert [row["_value"] for row in rows] == [framed(7, value(1)), b"x", None]
    assert [row["_schema_id"] for row in rows] == [None] * 3
    assert [(row["_error"] or "").partition(":")[0] for row in rows] == ["", "", "KEY_COUNT"]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_a_row_says_why_its_value_and_its_key_have_no_columns() -> None:
    plan = keyed(plan_of(VALUES), KEYS)

    file = ValueFile(plan, [[[b"?", framed(7, value(1)), b"?"]]], key_at=[b"k", framed(9, b""), KEY].__getitem__)

    errors = [row["_error"] for row in rows_of(file)]
    no_schema = "NO_SCHEMA: the value does not begin with byte 0 and a schema's id"
    assert errors == [f"{no_schema}; KEY_{no_schema}", "KEY_UNKNOWN_SCHEMA: 9", no_schema]
    assert file.errors == {"NO_SCHEMA": 2, "KEY_NO_SCHEMA": 1, "KEY_UNKNOWN_SCHEMA": 1}


async def test_a_long_reason_of_the_value_leaves_room_for_that_of_the_key() -> None:
    refusal = f"UNSUPPORTED_SCHEMA: {'x' * 236}"
    plan = keyed(plan_of({}, known=[7], refused={7: refusal}), KEYS)

    file = ValueFile(plan, [[[framed(7, b""), framed(7, b"")]]], key_at=[b"k", KEY].__getitem__)

    both, one = (row["_error"] for row in rows_of(file))
    assert both.startswith("UNSUPPORTED_SCHEMA: xxx")
    assert "; KEY_NO_SCHEMA: the value" in both
    assert (len(both) <= 256, one) == (True, refusal)


def test_an_item_asks_for_the_schemas_of_values_and_keys_at_once() -> None:
    plan = keyed(plan_of({}, known=[7]), {})
    assert plan.key is not None
    plan = replace(plan, key=replace(plan.key, known=[8]))

    with pytest.raises(MissingSchemas) as missing:
        ValueFile(plan, [[[framed(7, value(1))]]], key_at=lambda offset: KEY)

    assert (missing.value.ids, missing.value.key_ids) == ({7}, {8})


async def test_a_merge_of_files_of_all_eras_keeps_keys_and_leaves_the_same_ones_out() -> None:
    store = MemoryObjectStore()
    older = plan_of(VALUES)
    newer = keyed(older, KEYS)
    kept = keyed(older, KEYS, elides=False)
    files = [
        ValueFile(plan, [[[framed(7, value(at))]]], start=at, key_at=lambda offset: KEY)
        for at, plan in enumerate((None, older, kept, newer))
    ]
    refs = [await file.put(store) for file in files]
    reader = DataFileReader(store, DataFileSettings(thread_count=0))
    footers = [await reader.footer(ref) for ref in refs]
    columns = merged_columns([footer.typed.columns for footer in footers if footer.typed is not None])
    assert columns is not None

    writer = DataFileWriter("merged.parquet", columns)
    for ref, footer in zip(refs, footers, strict=True):
        writer.write(read_rows(await sparse(store, ref), footer, 0, columns))
    finished = writer.finish()

    await store.put("merged.parquet", finished.parts)
    merged = replace_key(refs[0], "merged.parquet", finished.file.size)
    assert await served(store, merged) == b"".join(batch for file in files for batch in file.batches)
    rows = pq.read_table(pa.BufferReader(b"".join(finished.parts))).to_pylist()
    assert [(row["id_2"], row["_key"]) for row in rows] == [(None, KEY), (None, KEY), (2**40, KEY), (2**40, None)]


def replace_key(ref: ObjectRef, key: str, size: int) -> ObjectRef:
    return ref._replace(key=key, size=size)


async def test_rot_in_the_columns_of_a_key_is_found_by_readers_and_by_key_compaction() -> None:
    store = MemoryObjectStore()
    good = keyed(plan_of({}), KEYS)
    file = ValueFile(replace(good, types_values=False), [[[b"x"]]], key_at=lambda offset: KEY)
    table = pq.read_table(pa.BufferReader(b"".join(file.finished.parts)))
    metadata = pq.read_metadata(pa.BufferReader(b"".join(file.finished.parts))).metadata
    at = table.schema.get_field_index("city")
    rotten = table.set_column(at, table.schema.field(at), pa.array(["Born"]))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rotten.schema, store_schema=False) as writer:
        writer.write_table(rotten)
        writer.add_key_value_metadata({"bearlake.typed": metadata[b"bearlake.typed"].decode()})
    octets = sink.getvalue().to_pybytes()
    await store.put("rotten", [octets])
    ref = replace_key(await file.put(store), "rotten", len(octets))
    footer = await DataFileReader(store, DataFileSettings(thread_count=0)).footer(ref)

    with pytest.raises(Corrupt, match="CRC"):
        await served(store, ref)
    with pytest.raises(Corrupt, match="CRC"):
        read_keyed(await sparse(store, ref), footer, 0)
