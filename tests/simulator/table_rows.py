"""Rows of data files as any Parquet reader sees them: read with pyarrow alone, by the column names that `docs/table.md` promises."""

import io
from typing import NamedTuple

import pyarrow.parquet as pq

Fields = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp (ms), key, value, headers."""


class TableRow(NamedTuple):
    """One row."""

    partition: int
    offset: int
    base_offset: int | None
    """Base offset of the record's batch; None if the row does not have it."""
    fields: Fields


def read_table_rows(stored: bytes) -> list[TableRow]:
    """Return all rows of a data file, in file order."""
    table = pq.read_table(io.BytesIO(stored))
    micros = table["_timestamp"].cast("int64").to_pylist()
    names = ("_partition_id", "_offset", "_batch", "_key", "_value", "_headers")
    columns = [table[name].to_pylist() for name in names]
    found = []
    for time_us, partition, offset, batch, key, value, headers in zip(micros, *columns, strict=True):
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        base = None if batch is None else batch["base_offset"]
        found.append(TableRow(partition, offset, base, (time_us // 1000, key, value, pairs)))
    return found
