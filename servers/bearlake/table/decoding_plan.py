"""Plans how a row group that any engine may have written is decoded in bounded memory, by the headers of its pages.

A few bytes of a file can stand for any number of bytes in memory: pages are compressed, runs repeat a value millions of times, and
an index stands for a text of megabytes. So texts with a dictionary are left as indices, and only as many rows are decoded at once as take
the allowed memory at most, whatever their pages contain. `column_costs.py` has the memory of a column. `row_slices.py` makes texts of the
indices, slice by slice.

Source: Apache Parquet format, "Data Pages", "Encodings".
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import pyarrow.parquet as pq

from bearlake.errors import Corrupt, Invalid
from bearlake.objects import ByteRange
from bearlake.table.column_costs import Cost, cost_of
from bearlake.table.file_budget import FileBudget
from bearlake.table.file_end import is_in, start_of
from bearlake.table.page_headers import UnknownPages
from bearlake.table.sparse import SparseFile

_UNKNOWN: Final = "a header is damaged, or of an unknown kind"
_PAGES_MAX: Final = 250_000
"""Pages of a row group. Their headers take 7 s of CPU time then; pages as engines write them would take gigabytes."""
_SLICE_BYTES: Final = 16 * 1024
"""Bytes that Arrow decodes in the time that a column of a slice takes besides its values."""
_COPIED_PER_DECODED: Final = 2
"""Bytes that Arrow copies in the time in which it decodes one."""
_COPY_BYTES: Final = 16
"""Bytes of a row's place while rows are divided further."""


class Plan(NamedTuple):
    """How to decode a row group: `row_count` rows at once, and the Parquet columns `indexed` (numbers) as indices into dictionaries.

    `once`: bytes that Arrow could decode in the time that each of these slices takes besides its rows. Columns may have the same path.
    """

    row_count: int
    indexed: Sequence[int]
    once: int


def plan(
    file: SparseFile,
    metadata: pq.FileMetaData,
    group: int,
    names: Collection[str] | None,
    bytes_max: int,
    budget: FileBudget,
) -> Plan:
    """Plan to decode the columns `names` (None: all) of a row group with rows in at most `bytes_max` bytes. `file` has their bytes.

    Raises:
        Corrupt: the headers of pages are damaged, or of an unknown kind.
        Invalid: one row may take more, or all pages more than the budget has.
    """
    row_group = metadata.row_group(group)
    costs: list[Cost] = []
    indexed: list[int] = []
    left = _PAGES_MAX
    for at in range(row_group.num_columns):
        column, leaf = row_group.column(at), metadata.schema.column(at)
        if names is None or is_in(leaf.path, names):
            try:
                costs.append(_cost(file, column, leaf, row_group.num_rows, bytes_max, left, budget))
                left -= costs[-1].page_count
                budget.decoded(costs[-1].decompressed, group)
                indexed += [at] if costs[-1].is_indexed else []
            except UnknownPages as error:
                reason = f"the column {leaf.path} has pages that cannot be read: {str(error) or _UNKNOWN}"
                raise Corrupt(f"data file, row group {group}: {reason}") from error
    row_count = max(1, row_group.num_rows)
    while (size := row_count * _COPY_BYTES + sum(cost.of(row_count) for cost in costs)) > bytes_max:
        if row_count == 1:
            largest = max(costs, key=lambda cost: cost.of(1))
            raise too_large(group, largest.path, largest.of(1), size, bytes_max)
        row_count //= 2
    return Plan(row_count, indexed, sum(_SLICE_BYTES + cost.copied // _COPIED_PER_DECODED for cost in costs))


def too_large(group: int, path: str, column_bytes: int, size_bytes: int, bytes_max: int) -> Invalid:
    """Return the error for rows that may take `size_bytes` in memory, most of them (`column_bytes`) in the column `path`."""
    return Invalid(
        f"data file, row group {group}: a row may take {size_bytes} bytes of memory, {column_bytes} of them in the column {path}; "
        f"the limit is compaction.task.current_bytes, {bytes_max} bytes"
    )


def _cost(
    file: SparseFile,
    column: pq.ColumnChunkMetaData,
    leaf: pq.ColumnSchema,
    row_count: int,
    bytes_max: int,
    page_count_max: int,
    budget: FileBudget,
) -> Cost:
    """Raises `UnknownPages`."""
    start = start_of(column)
    chunk = file.loaded(ByteRange(start, start + column.total_compressed_size))
    if chunk is None:
        raise UnknownPages(f"bytes from {start} were not loaded")
    return cost_of(
        chunk,
        column,
        leaf,
        row_count=row_count,
        bytes_max=bytes_max,
        page_count_max=page_count_max,
        budget=budget,
    )
