"""Finds superseded rows among the keys of a chunk of rows: the computation of `compaction/superseded.py`, in columns, without I/O."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.table.schema import KEY, OFFSET, PARTITION_ID

COLUMNS = (PARTITION_ID, OFFSET, KEY)
"""The columns that are compared."""
Mask: TypeAlias = pa.BooleanArray
"""Says of each row whether it is one of those that are meant."""


class KeyChunk:
    """Rows to judge: each row's key as the index of a dictionary, and the newest offset of each key seen so far."""

    def __init__(self, tables: Sequence[pa.Table], bounds: Mapping[int, int]) -> None:
        """`tables` have `COLUMNS`. `bounds`: partition index → offset below which rows supersede and are superseded."""
        self._counts = [table.num_rows for table in tables]
        self._bounds = bounds
        rows = pa.concat_tables(tables).combine_chunks()
        firsts = rows.group_by(PARTITION_ID, use_threads=False).aggregate([(OFFSET, "min")])
        self.first_offsets: Mapping[int, int] = dict(
            zip(firsts[PARTITION_ID].to_pylist(), firsts[f"{OFFSET}_min"].to_pylist(), strict=True)
        )
        keys = _qualified(rows).dictionary_encode()
        self._indices, self._keys = keys.indices, keys.dictionary
        self._offsets = _only(rows[OFFSET])
        self._is_below = self._below(rows)
        self._newest = _newest(self._indices, pc.if_else(self._is_below, self._offsets, -1))

    def see(self, tables: Sequence[pa.Table]) -> None:
        """Note the keys of other rows."""
        rows = pa.concat_tables(tables).combine_chunks()
        indices = pc.index_in(_qualified(rows), value_set=self._keys)
        is_known = pc.and_(pc.is_valid(indices), self._below(rows))
        seen = pa.table({"index": indices, "offset": _only(rows[OFFSET])}).filter(is_known)
        both = pa.concat_tables([self._newest, seen])
        self._newest = _newest(both["index"], both["offset"])

    def marks(self) -> list[Mask | None]:
        """Return, for each table given, which rows are superseded or have no key; None: no row is."""
        newest = _only(self._newest.sort_by("index")["offset"])  # of every index, since all come from the chunk's rows
        is_older = pc.greater(newest.take(self._indices), self._offsets)  # null: no key
        is_gone = pc.and_(pc.fill_null(is_older, True), self._is_below)
        found: list[Mask | None] = []
        at = 0
        for count in self._counts:
            mask = is_gone.slice(at, count)
            at += count
            found.append(pa.concat_arrays([mask]) if pc.any(mask).as_py() else None)
        return found

    def _below(self, rows: pa.Table) -> pa.BooleanArray:
        """Return which rows are below their partition's bound."""
        partitions = pa.array(list(self._bounds), pa.int32())
        bounds = pa.array(list(self._bounds.values()), pa.int64())
        of_rows = bounds.take(pc.index_in(_only(rows[PARTITION_ID]), value_set=partitions))
        return pc.fill_null(pc.less(_only(rows[OFFSET]), of_rows), False)


def _qualified(rows: pa.Table) -> pa.BinaryArray:
    """Return the rows' keys after four bytes of their partitions; null for rows without a key."""
    partitions = _only(rows[PARTITION_ID])
    buffers = [None, partitions.buffers()[1]]
    prefixes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), len(partitions), buffers, offset=partitions.offset)
    return pc.binary_join_element_wise(prefixes.cast(pa.binary()), _only(rows[KEY]), b"")


def _newest(indices: pa.Array, offsets: pa.Array) -> pa.Table:
    """Return the largest offset of each index; leaves out the null index."""
    table = pa.table({"index": indices, "offset": offsets})
    table = table.filter(pc.is_valid(table["index"]))
    found = table.group_by("index", use_threads=False).aggregate([("offset", "max")])
    return pa.table({"index": found["index"], "offset": found["offset_max"]})


def _only(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
