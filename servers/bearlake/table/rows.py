"""Moves rows from data files to other data files: reads row groups, cuts by key, sorts, and regroups.

A *key* is (`_partition_id`, `_offset`); the rows of a file are sorted by key. All steps work on columns, never row by row.
Pure functions for a thread; no pyarrow errors escape. Used by merging (`compaction/merge.py`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bearlake.errors import Corrupt
from bearlake.table.file_end import UNREADABLE
from bearlake.table.footer import Footer
from bearlake.table.key_chunk import COLUMNS as KEYED_COLUMNS
from bearlake.table.schema import ARROW_SCHEMA, BATCH, KEY, OFFSET, PARTITION_ID, TIMESTAMP, VALUE
from bearlake.table.sparse import SparseFile
from bearlake.table.typed_rows import conformed, file_schema, restored, restored_keys
from bearlake.table.value_plan import FileColumns

KEY_COLUMNS = (PARTITION_ID, OFFSET)
_MICROSECONDS = 1000
ROW_BYTES = 60
"""Uncompressed size (bytes) of a row's fixed-width columns and offsets."""

Key: TypeAlias = tuple[int, int]
"""(partition index, offset)"""


class KeyRun(NamedTuple):
    """Rows `[start, end)` of one partition in a row group; `first` and `last` are offsets."""

    partition: int
    first: int
    last: int
    start: int
    end: int


class Keys:
    """The keys of rows, for lookups."""

    def __init__(self, rows: pa.Table) -> None:
        self._partitions = _numbers(rows[PARTITION_ID], "i")
        self._offsets = _numbers(rows[OFFSET], "q")

    def __len__(self) -> int:
        return len(self._offsets)

    def key(self, row: int) -> Key:
        """Return the key of a row, by its index."""
        return self._partitions[row], self._offsets[row]

    def find(self, key: Key) -> int:
        """Return the index of the first row whose key is at or after `key`."""
        start = bisect_left(self._partitions, key[0])
        end = bisect_right(self._partitions, key[0], start)
        return bisect_left(self._offsets, key[1], start, end)

    def runs(self) -> Iterator[KeyRun]:
        """Yield the runs of rows of one partition, in order."""
        start = 0
        while start < len(self):
            partition = self._partitions[start]
            end = bisect_right(self._partitions, partition, start)
            yield KeyRun(partition, self._offsets[start], self._offsets[end - 1], start, end)
            start = end


def read_keys(file: SparseFile, footer: Footer, group: int) -> Keys:
    """Read the keys of a row group; `file` has the bytes of `Footer.time_ranges`.

    Raises:
        Corrupt: the rows cannot be decoded.
    """
    return Keys(_read(file, footer, group, KEY_COLUMNS))


def read_columns(file: SparseFile, footer: Footer, group: int, columns: Sequence[str]) -> pa.Table:
    """Read columns of a row group; `file` has the bytes of `Footer.ranges_of` them.

    Raises:
        Corrupt: the rows cannot be decoded.
    """
    return _read(file, footer, group, columns)


def read_keyed(file: SparseFile, footer: Footer, group: int) -> pa.Table:
    """Read partitions, offsets and complete keys of a row group; `file` has the bytes of `Footer.key_columns`.

    Raises:
        Corrupt: the rows cannot be decoded.
    """
    rows = _read(file, footer, group, footer.key_columns)
    own = rows.select(KEYED_COLUMNS)
    if footer.typed is None or footer.typed.has_keys(group):
        return own
    try:
        return own.set_column(
            KEYED_COLUMNS.index(KEY), ARROW_SCHEMA.field(KEY), restored_keys(rows, footer.typed, group)
        )
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error


def read_rows(file: SparseFile, footer: Footer, group: int, columns: FileColumns | None = None) -> pa.Table:
    """Read all columns of the row group in `file`, with all values. `columns`: the typed columns of the result; None: none.

    Raises:
        Corrupt: the rows cannot be decoded, or do not have our format.
    """
    typed = footer.typed
    expected = ARROW_SCHEMA if typed is None else file_schema(typed.columns.book)
    rows = _read(file, footer, group, expected.names)
    if not rows.schema.equals(expected):
        raise Corrupt(f"data file, row group {group}: the columns are not those of a stream")
    if columns is None:
        assert typed is None, "rows with typed columns are rewritten with typed columns"
        return rows
    try:
        rows = rows if typed is None else restored(rows, typed, group)
        return conformed(rows, None if typed is None else typed.columns, columns)
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error


def cut(rows: pa.Table, low: Key, high: Key | None) -> Iterator[tuple[Key, pa.Table]]:
    """Yield the rows with keys in `[low, high)` (None: to the end), one table per partition with its first key.

    A table retains only its own memory, unless it has nearly all of `rows`.
    """
    keys = Keys(rows)
    start = keys.find(low)
    end = len(keys) if high is None else keys.find(high)
    if start == end:
        return
    selected = rows.slice(start, end - start)
    if selected.num_rows * 2 < rows.num_rows:
        selected = compact(selected)
    for run in keys.runs():
        first, last = max(run.start, start), min(run.end, end)
        if first < last:
            yield keys.key(first), selected.slice(first - start, last - first)


def in_order(pieces: Sequence[tuple[Key, pa.Table]]) -> pa.Table:
    """Return all rows of `pieces` sorted by key; each piece is sorted and has one partition."""
    tables = [piece for _, piece in sorted(pieces, key=lambda piece: piece[0])]
    rows = pa.concat_tables(tables)
    ends = [(piece[PARTITION_ID][-1].as_py(), piece[OFFSET][-1].as_py()) for piece in tables]
    starts = [(piece[PARTITION_ID][0].as_py(), piece[OFFSET][0].as_py()) for piece in tables]
    if all(end < start for end, start in zip(ends, starts[1:], strict=False)):
        return rows
    order = pc.sort_indices(rows, sort_keys=[(PARTITION_ID, "ascending"), (OFFSET, "ascending")])
    return rows.take(order)


def groups(tables: Sequence[pa.Table], bytes_max: int, row_bytes: int = ROW_BYTES) -> list[pa.Table]:
    """Group the rows of `tables` into at most `bytes_max` uncompressed bytes each, ending at batch boundaries; at least one batch each.

    A row counts as its key, its value and `row_bytes`.
    """
    rows = pa.concat_tables(tables)
    sizes = pc.add(_lengths(rows[KEY]), _lengths(rows[VALUE]))
    totals = _numbers(pc.cumulative_sum(pc.add(sizes, row_bytes)), "q")
    bounds = [0, *_batch_starts(rows), rows.num_rows]
    cuts = [0]
    while cuts[-1] < rows.num_rows:
        spent = totals[cuts[-1] - 1] if cuts[-1] else 0
        full = bisect_right(totals, spent + bytes_max)  # rows [cut, full) have at most `bytes_max` bytes
        at = bisect_right(bounds, full) - 1
        cuts.append(bounds[at] if bounds[at] > cuts[-1] else bounds[bisect_right(bounds, cuts[-1])])
    return [rows.slice(start, end - start) for start, end in pairwise(cuts)]


def without(rows: pa.Table, gone: pa.BooleanArray) -> pa.Table:
    """Return the rows for which the mask `gone` is false."""
    return rows.filter(pc.invert(gone))


def without_places(rows: pa.Table, places: Sequence[int]) -> pa.Table:
    """Return the rows whose index is not in `places`."""
    stays = bytearray(b"\x01") * rows.num_rows
    for at in places:
        stays[at] = 0
    mask = pa.Array.from_buffers(pa.uint8(), rows.num_rows, [None, pa.py_buffer(bytes(stays))])
    return rows.filter(mask.cast(pa.bool_()))


def tombstones(rows: pa.Table) -> list[tuple[int, int, int]]:
    """Return (index of the row, partition index, offset) of the rows without a value."""
    if not rows[VALUE].null_count:
        return []
    places = pc.indices_nonzero(pc.is_null(rows[VALUE]))
    found = rows.select([PARTITION_ID, OFFSET]).take(places)
    return list(zip(places.to_pylist(), found[PARTITION_ID].to_pylist(), found[OFFSET].to_pylist(), strict=True))


def newest_ms(rows: pa.Table, start: int, end: int) -> int:
    """Return the largest timestamp (ms) of the rows with index `[start, end)`, which are not none."""
    newest_us: int = pc.max(rows[TIMESTAMP].slice(start, end - start).cast(pa.int64())).as_py()
    return newest_us // _MICROSECONDS


def batch_base(rows: pa.Table, at: int) -> int:
    """Return the base offset of the row's batch."""
    base: int = rows[BATCH][at]["base_offset"].as_py()
    return base


def compact(rows: pa.Table) -> pa.Table:
    """Copy the rows with each column contiguous, so that the copy retains no other memory."""
    return pa.Table.from_arrays([pa.concat_arrays(column.chunks) for column in rows.columns], schema=rows.schema)


def _batch_starts(rows: pa.Table) -> Iterator[int]:
    """Yield the indexes of rows that begin a batch, except the first row."""
    batches = pa.concat_arrays([chunk.field("base_offset") for chunk in rows[BATCH].chunks])
    partitions = pa.concat_arrays(rows[PARTITION_ID].chunks)
    changes = pc.or_(pc.not_equal(batches[1:], batches[:-1]), pc.not_equal(partitions[1:], partitions[:-1]))
    return (at + 1 for at in _numbers(pc.indices_nonzero(changes), "Q"))


def _lengths(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _numbers(values: pa.ChunkedArray | pa.Array, form: Literal["i", "q", "Q"]) -> memoryview:
    """Return the numbers as a view of 4 or 8 bytes each; copies if they are not contiguous."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    array = (
        chunks[0]
        if len(chunks) == 1 and chunks[0].offset == 0
        else pa.concat_arrays(chunks or [pa.array([], values.type)])
    )
    buffer = array.buffers()[1]
    view: memoryview = memoryview(b"" if buffer is None else buffer).cast("B").cast(form)
    return view[array.offset : array.offset + len(array)]


def _read(file: SparseFile, footer: Footer, group: int, columns: Sequence[str]) -> pa.Table:
    footer.check(file, group)
    try:
        source = pq.ParquetFile(pa.PythonFile(file, mode="r"), metadata=footer.metadata, pre_buffer=False)
        return source.read_row_group(group, columns=list(columns), use_threads=False)
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error
