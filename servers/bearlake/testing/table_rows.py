"""Rows of data files as any reader of Parquet gets them: with pyarrow alone, by the names of the columns that `docs/table.md` promises."""

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
    """Of the batch that the record came in; None where the row does not tell."""
    fields: Fields


def read_table_rows(stored: bytes) -> list[TableRow]:
    """All rows of a data file, in its order."""
    table = pq.read_table(io.BytesIO(stored))
    micros = table["_timestamp"].cast("int64").to_pylist()
    names = ("_partition_id", "_offset", "_batch", "_key", "_value", "_headers")
    columns = [table[name].to_pylist() for name in names]
    found = []
    for time_us, partition, offset, batch, key, value, headers in zip(micros, *columns, strict=True):
        pairs = tuple((one["key"], one["value"]) for one in headers or ())
        base = None if batch is None else batch["base_offset"]
        found.append(TableRow(partition, offset, base, (time_us // 1000, key, value, pairs)))
    return found
