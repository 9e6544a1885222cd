"""Data files with typed columns: what consumers get is what was produced, byte for byte (I6), and rot is found."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bearlake.errors import Corrupt
from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.value_typing import MissingSchemas
from fixtures.avro_cases import CASES, NANS, AvroCase, number, record, text
from fixtures.typed_values import ValueFile, framed, plan_of, served, writer_schema

ORDERS = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


def order(id_: int, note: str | None = None) -> bytes:
    return number(id_) + (number(0) if note is None else number(1) + text(note))


def rows_of(file: ValueFile, *columns: str) -> list[dict[str, Any]]:
    table = pq.read_table(pa.BufferReader(b"".join(file.finished.parts)), columns=list(columns) or None)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


@pytest.mark.parametrize("elides", [False, True])
@pytest.mark.parametrize("case", [*CASES, *NANS], ids=lambda case: case.label)
async def test_every_avro_value_is_served_as_it_was_produced(case: AvroCase, elides: bool) -> None:
    store = MemoryObjectStore()
    plan = plan_of({7: writer_schema(case.schema)}, elides=elides)

    file = ValueFile(plan, [[[framed(7, case.value), None, b"", framed(7, case.value)]]])

    assert await served(store, await file.put(store)) == b"".join(file.batches)
    (row, tombstone, empty, _) = rows_of(file, "_value", "_schema_id", "_error")
    assert (row["_value"] is None) == (elides and case.outcome.name == "EXACT")
    assert (tombstone["_value"], tombstone["_schema_id"], tombstone["_error"]) == (None, None, None)
    assert (empty["_value"], empty["_schema_id"]) == (b"", None)


async def test_a_row_has_columns_and_loses_its_bytes_only_if_the_columns_give_them_back() -> None:
    store = MemoryObjectStore()
    plan = plan_of({7: writer_schema(ORDERS)})
    overlong = b"\x82\x00" + number(0)  # the long 1 in two bytes

    file = ValueFile(
        plan, [[[framed(7, order(1, "a")), framed(7, overlong), framed(7, b"\x02"), b"\1x", framed(9, b"")]]]
    )

    assert [
        (row["id"], row["note"], row["_value"] is None, row["_schema_id"], (row["_error"] or "").partition(":")[0])
        for row in rows_of(file)
    ] == [
        (1, "a", True, 7, ""),
        (1, None, False, 7, ""),
        (None, None, False, 7, "TRUNCATED"),
        (None, None, False, None, "NO_SCHEMA"),
        (None, None, False, 9, "UNKNOWN_SCHEMA"),
    ]
    assert file.errors == {"TRUNCATED": 1, "NO_SCHEMA": 1, "UNKNOWN_SCHEMA": 1}
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_interleaved_writers_share_columns_that_became_wider() -> None:
    store = MemoryObjectStore()
    schemas = {
        1: writer_schema(record("int", "float", "string")),
        2: writer_schema(record("long", "double", "bytes")),
    }
    old = [number(at) + b"\0\0\x80\x3f" + text("x") for at in range(5)]
    new = [number(2**40 + at) + b"\0\0\0\0\0\0\xf0\x3f" + text(b"\xff") for at in range(5)]
    values = [framed(1 + at % 2, (old, new)[at % 2][at // 2]) for at in range(10)]

    file = ValueFile(plan_of(schemas), [[values[:3], values[3:7]], [values[7:]]])

    rows = rows_of(file)
    assert [row["f0"] for row in rows[:2]] == [0, 2**40]
    assert [row["f1"] for row in rows[:2]] == [1.0, 1.0]
    assert [(row["f2"], row["f2__binary"]) for row in rows[:2]] == [("x", None), (None, b"\xff")]
    assert all(row["_value"] is None for row in rows)
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_a_signalling_nan_in_a_column_that_became_wider_keeps_its_bytes() -> None:
    store = MemoryObjectStore()
    schemas = {1: writer_schema(record("float")), 2: writer_schema(record("double"))}
    values = [framed(1, b"\1\0\xa0\x7f"), framed(1, b"\0\0\xc0\x7f"), framed(1, b"\0\0\0\x80")]

    file = ValueFile(plan_of(schemas), [[values]])

    assert [row["_value"] is None for row in rows_of(file)][1:] == [True, True]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_a_fixed_schema_needs_no_header() -> None:
    store = MemoryObjectStore()
    plan = plan_of({7: writer_schema(ORDERS, is_framed=False)}, schema_id=7)

    file = ValueFile(plan, [[[order(1, "a"), None, order(2)]]])

    assert [(row["id"], row["_value"], row["_schema_id"]) for row in rows_of(file)] == [
        (1, None, 7),
        (None, None, None),
        (2, None, 7),
    ]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


def test_a_known_schema_without_columns_is_asked_for() -> None:
    plan = plan_of({7: writer_schema(ORDERS)}, known=[7, 8, 9], refused={9: "UNSUPPORTED_SCHEMA: too wide"})

    with pytest.raises(MissingSchemas) as raised:
        ValueFile(plan, [[[framed(7, order(1)), framed(8, b""), framed(9, b""), framed(10, b"")]]])

    assert raised.value.ids == {8}


async def test_a_row_group_says_how_much_memory_its_rows_take() -> None:
    values = [framed(7, order(at, "a note that repeats in every order")) for at in range(2_000)]
    file = ValueFile(plan_of({7: writer_schema(ORDERS)}), [[values]])
    store = MemoryObjectStore()
    reader = DataFileReader(store, DataFileSettings(thread_count=0))

    footer = await reader.footer(await file.put(store))

    assert footer.metadata.row_group(0).total_byte_size < 40_000
    assert footer.groups[0].size_bytes > 2 * sum(map(len, values))


async def damaged(change: str) -> bytes:
    """Serve a file whose footer was changed."""
    store = MemoryObjectStore()
    file = ValueFile(plan_of({7: writer_schema(ORDERS)}), [[[framed(7, order(at, "a")) for at in range(9)]]])
    content = b"".join(file.finished.parts)
    table = pq.read_table(pa.BufferReader(content))
    fields = json.loads(pq.read_metadata(pa.BufferReader(content)).metadata[b"bearlake.typed"])
    if change == "crc":
        fields["crcs"][0][0] ^= 1
    elif change == "ends":
        fields["crcs"][0][1] ^= 1
    elif change == "schema":
        fields["schemas"]["7"][1] = json.dumps({**ORDERS, "fields": ORDERS["fields"][::-1]})
    elif change == "groups":
        fields["sizes"] = fields["sizes"] * 2
    elif change == "no schema":
        fields["schemas"] = {}
    elif change == "row":
        at = table.schema.get_field_index("id")
        table = table.set_column(at, table.schema.field(at), pa.array([0, 1, 2, 3, 4, 5, 6, 7, 9]))
    elif change == "null row":
        at = table.schema.get_field_index("id")
        table = table.set_column(at, table.schema.field(at), pa.array([None, *range(1, 9)], pa.int64()))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        if change != "no footer":
            writer.add_key_value_metadata({"bearlake.typed": json.dumps(fields)})
    await store.put("damaged", [sink.getvalue().to_pybytes()])
    found = await served(store, ObjectRef("damaged", sink.getvalue().size, ObjectKind.PARQUET))
    assert found == b"".join(file.batches)
    return found


async def test_the_damaging_helper_itself_changes_nothing() -> None:
    await damaged("nothing")


@pytest.mark.parametrize("change", ["crc", "ends", "groups", "schema", "no schema", "no footer", "row", "null row"])
async def test_rot_in_elided_values_is_refused(change: str) -> None:
    with pytest.raises(Corrupt):
        await damaged(change)


leaves = st.sampled_from(["int", "long", "float", "double", "string", "bytes", "boolean"])
octets = st.one_of(st.binary(max_size=30), st.none())


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.lists(leaves, min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.lists(st.tuples(st.integers(0, 4), octets), min_size=1, max_size=6), min_size=1, max_size=4),
    st.booleans(),
)
async def test_any_bytes_are_served_as_they_were_produced(
    types: list[list[str]], content: list[list[tuple[int, bytes | None]]], elides: bool
) -> None:
    schemas = {at: writer_schema(record(*fields)) for at, fields in enumerate(types)}
    store = MemoryObjectStore()
    values = [[value if value is None else framed(at, value) for at, value in batch] for batch in content]

    file = ValueFile(plan_of(schemas, elides=elides), [values[:2], values[2:]] if values[2:] else [values])

    assert await served(store, await file.put(store)) == b"".join(file.batches)
