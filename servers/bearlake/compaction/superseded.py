"""Finds superseded rows: rows whose key has a newer record below the partition's bound. Reads keys and offsets only.

Exact and with bounded memory: the keys themselves are compared, never only their hashes. The rows of the files to rewrite are taken in
chunks of row groups whose keys fit into `key_bytes`. For each chunk, the keys of the dirty files stream past the chunk's keys, which are
encoded as a dictionary. So a chunk of n keys takes about n * (key size + 40) bytes, however many keys the stream has.
The cost: each key is read once, and each dirty key once more per chunk with older rows of its partition.

pyarrow computes; no step handles row by row.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

import bearlake.table.rows as table_rows
from bearlake.compaction.row_passes import Group, Place, load
from bearlake.compaction.workbench import Workbench
from bearlake.objects import ObjectStore
from bearlake.table.schema import KEY, OFFSET, PARTITION_ID

COLUMNS = (PARTITION_ID, OFFSET, KEY)
_ROW_BYTES = 40
"""Memory (bytes) that a row takes beyond its key."""


async def superseded(
    groups: Sequence[Group],
    dirty: Sequence[Group],
    bounds: Mapping[int, int],
    store: ObjectStore,
    workbench: Workbench,
) -> dict[Place, pa.BooleanArray]:
    """Return for each of `groups` with superseded rows which rows are superseded, or have no key.

    Only rows below the partition's bound (`bounds`, by index) are superseded or supersede. Newer records are looked for in `dirty`; rows of
    cleaned files supersede none of each other (`key_compaction.py`).

    Raises:
        Corrupt, NotFound, Unavailable: as `compaction.task.run`.
    """
    found: dict[Place, pa.BooleanArray] = {}
    key_bytes = workbench.limits.key_bytes
    for chunk_groups in _chunks(groups, key_bytes):
        tables = [await _read(group, store, workbench) for group in chunk_groups]
        chunk = await workbench.compute(partial(_Chunk, chunk_groups, tables, bounds))
        del tables
        taken = {group.place for group in chunk_groups}
        others = [group for group in dirty if group.place not in taken and chunk.may_be_older(group)]
        for batch in _chunks(others, key_bytes):
            tables = [await _read(group, store, workbench) for group in batch]
            await workbench.compute(partial(chunk.see, tables))
        found.update(await workbench.compute(chunk.marks))
    return found


def _chunks(groups: Sequence[Group], bytes_max: int) -> Iterator[list[Group]]:
    """Split the row groups into runs whose keys take at most `bytes_max` bytes of memory, but at least one row group."""
    chunk: list[Group] = []
    room = bytes_max
    for group in groups:
        found = group.footer.groups[group.number]
        size = group.footer.size_of(group.number, [KEY]) + _ROW_BYTES * (found.row_end - found.row_start)
        if chunk and size > room:
            yield chunk
            chunk, room = [], bytes_max
        chunk.append(group)
        room -= size
    if chunk:
        yield chunk


async def _read(group: Group, store: ObjectStore, workbench: Workbench) -> pa.Table:
    file = await load(group, group.footer.ranges_of(group.number, COLUMNS), store)
    return await workbench.compute(partial(table_rows.read_columns, file, group.footer, group.number, COLUMNS))


class _Chunk:
    """Rows to judge: each row's key as the index of a dictionary, and the newest offset of each key seen so far."""

    def __init__(self, groups: Sequence[Group], tables: Sequence[pa.Table], bounds: Mapping[int, int]) -> None:
        self._places = [(group.place, table.num_rows) for group, table in zip(groups, tables, strict=True)]
        self._bounds = bounds
        rows = pa.concat_tables(tables).combine_chunks()
        firsts = rows.group_by(PARTITION_ID, use_threads=False).aggregate([(OFFSET, "min")])
        self._first_offsets = dict(
            zip(firsts[PARTITION_ID].to_pylist(), firsts[f"{OFFSET}_min"].to_pylist(), strict=True)
        )
        keys = _qualified(rows).dictionary_encode()
        self._indices, self._keys = keys.indices, keys.dictionary
        self._offsets = _only(rows[OFFSET])
        self._is_below = self._below(rows)
        self._newest = _newest(self._indices, pc.if_else(self._is_below, self._offsets, -1))

    def may_be_older(self, group: Group) -> bool:
        """Return whether a row of the chunk may be older than a row of `group` in the same partition."""
        found = group.footer.groups[group.number]
        if found.is_of_one_partition:
            return self._first_offsets.get(found.partition_min, found.offset_max) < found.offset_max
        return any(found.partition_min <= index <= found.partition_max for index in self._first_offsets)

    def see(self, tables: Sequence[pa.Table]) -> None:
        """Note the keys of other rows."""
        rows = pa.concat_tables(tables).combine_chunks()
        indices = pc.index_in(_qualified(rows), value_set=self._keys)
        is_known = pc.and_(pc.is_valid(indices), self._below(rows))
        seen = pa.table({"index": indices, "offset": _only(rows[OFFSET])}).filter(is_known)
        both = pa.concat_tables([self._newest, seen])
        self._newest = _newest(both["index"], both["offset"])

    def marks(self) -> dict[Place, pa.BooleanArray]:
        """Return the superseded rows of each row group that has some."""
        newest = _only(self._newest.sort_by("index")["offset"])  # of every index, since all come from the chunk's rows
        is_older = pc.greater(newest.take(self._indices), self._offsets)  # null: no key
        is_gone = pc.and_(pc.fill_null(is_older, True), self._is_below)
        found = {}
        at = 0
        for place, count in self._places:
            mask = is_gone.slice(at, count)
            at += count
            if pc.any(mask).as_py():
                found[place] = pa.concat_arrays([mask])
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
