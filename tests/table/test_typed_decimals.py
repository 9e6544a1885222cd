"""Decimals in data files: those of up to 18 digits are integers, as Iceberg's specification has them, and all come back byte for byte."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bearlake.objects.memory import MemoryObjectStore
from fixtures.avro_cases import number, text
from fixtures.typed_values import ValueFile, framed, plan_of, served, writer_schema

DIGITS = (1, 9, 10, 18, 19, 38)
STORED = {1: "INT32", 9: "INT32", 10: "INT64", 18: "INT64", 19: "FIXED_LEN_BYTE_ARRAY", 38: "FIXED_LEN_BYTE_ARRAY"}


def decimal_type(digits: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 1}


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
