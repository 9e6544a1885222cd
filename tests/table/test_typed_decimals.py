"""Decimals in data files: those of up to 18 digits are integers, as Iceberg's specification has them, and all come back byte for byte."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.objects.memory import MemoryObjectStore
from fixtures.avro_cases import number, text
from fixtures.typed_values import ValueFile, framed, plan_of, served, writer_schema

DIGITS = (1, 9, 10, 18, 19, 38)
STORED = {1: "INT32", 9: "INT32", 10: "INT64", 18: "INT64", 19: "FIXED_LEN_BYTE_ARRAY", 38: "FIXED_LEN_BYTE_ARRAY"}


def decimal_type(digits: int, scale: int = 1) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}


FIELDS = [{"name": f"d{digits}", "type": ["null", decimal_type(digits)]} for digits in DIGITS]
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        *FIELDS,
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": FIELDS}}},
    ],
}


def encoded(units: int | None) -> bytes:
    """A decimal or null, as Avro has it."""
    if units is None:
        return number(0)
    size = next(size for size in range(1, 17) if -(1 << 8 * size - 1) <= units < 1 << 8 * size - 1)
    return number(1) + text(units.to_bytes(size, "big", signed=True))


def edges(digits: int) -> list[int | None]:
    """Units of decimals: the largest, the smallest, and those around them and 0."""
    largest = 10**digits - 1
    return [0, 1, -1, largest, -largest, largest // 2, None, -largest + 1]


async def test_decimals_are_integers_where_they_fit_and_come_back_unchanged() -> None:
    rows = [[edges(digits)[at] for digits in DIGITS] for at in range(len(edges(1)))]
    values = [b"".join(map(encoded, row)) + number(1) + b"".join(map(encoded, row)) + number(0) for row in rows]
    store = MemoryObjectStore()

    file = ValueFile(plan_of({7: writer_schema(ORDER)}), [[[framed(7, value) for value in values]]])

    written = pq.ParquetFile(pa.BufferReader(b"".join(file.finished.parts)))
    group = written.metadata.row_group(0)
    stored = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    for digits in DIGITS:
        for path in (f"d{digits}", f"items.list.element.d{digits}"):
            assert stored[path].physical_type == STORED[digits]
            assert ("DELTA_BINARY_PACKED" in stored[path].encodings) == (digits <= 18)
    table = written.read()
    assert table["_value"].null_count == len(values), "all are left out"
    for at, digits in enumerate(DIGITS):
        expected = [None if row[at] is None else Decimal(f"{row[at]}E-1") for row in rows]
        assert table[f"d{digits}"].to_pylist() == expected
        assert [items[0][f"d{digits}"] for items in table["items"].to_pylist()] == expected
    assert await served(store, await file.put(store)) == b"".join(file.batches)


@pytest.mark.parametrize(
    ("first", "second", "columns"),
    [
        ((9, 1), (18, 1), ["d"]),
        ((18, 0), (19, 0), ["d"]),
        ((19, 1), (9, 1), ["d"]),
        ((9, 0), (9, 1), ["d", "d__decimal_9_1"]),
        ((18, 18), (19, 0), ["d", "d__decimal_19_0"]),
    ],
)
async def test_writers_with_other_digits_and_scales_share_a_file(
    tmp_path: Path, first: tuple[int, int], second: tuple[int, int], columns: list[str]
) -> None:
    types = {7: first, 8: second}
    schemas = {
        number_: writer_schema(
            {"type": "record", "name": "Order", "fields": [{"name": "d", "type": ["null", decimal_type(*type_)]}]}
        )
        for number_, type_ in types.items()
    }
    rows = [
        (schema, units) for at in range(8) for schema in types if (units := edges(types[schema][0])[at]) is not None
    ]
    store = MemoryObjectStore()

    file = ValueFile(plan_of(schemas), [[[framed(schema, encoded(units)) for schema, units in rows]]])

    path = tmp_path / "file.parquet"
    path.write_bytes(b"".join(file.finished.parts))
    table = pq.read_table(path)
    assert [name for name in table.column_names if not name.startswith("_")] == columns
    assert table["_value"].null_count == len(rows), "all are left out"
    found = [
        next(v for v in pair if v is not None) for pair in zip(*(table[c].to_pylist() for c in columns), strict=True)
    ]
    expected = [Decimal(f"{units}E-{types[schema][1]}") for schema, units in rows]
    assert found == expected
    for column in columns:
        values = [value for value in table[column].to_pylist() if value is not None]
        for value in values:
            query = f"select count(*) from '{path}' where {column} <= {value:f}::{str(table[column].type).replace('128', '')}"
            assert duckdb.execute(query).fetchall() == [(sum(other <= value for other in values),)]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_decimals_with_more_bytes_or_digits_than_needed_come_back_byte_for_byte() -> None:
    """Such values do not follow from their number: the file has their bytes."""
    units = [0, -1, 10**9 - 1, 10**9, -(10**18), 2**63, -(2**63) - 1, 2**31]
    octets = [value.to_bytes(size, "big", signed=True) for value in units for size in (9, 12, 16)]
    values = [number(1) + text(found) for found in [*octets, b"", b"\xff" * 20, b"\0" * 20]]
    for digits in (9, 18, 19):
        schema = {"type": "record", "name": "Order", "fields": [{"name": "d", "type": ["null", decimal_type(digits)]}]}
        file = ValueFile(plan_of({7: writer_schema(schema)}), [[[framed(7, value) for value in values]]])
        store = MemoryObjectStore()

        assert await served(store, await file.put(store)) == b"".join(file.batches)
