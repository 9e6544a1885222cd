"""Reads rows for current tables: from the data files of a stream's table, also those that other engines wrote, and of its current table.

Columns are found by field id, and get the types of the current table, so files of all eras of a stream fit. Rows stay as their file has
them: `_value` is null where typed columns stand for the value. `_key` is complete, since buckets are made of it. Among events of a change
data capture, `_value` is complete where the value is no event.

Pure functions for a thread; no pyarrow errors escape. Source: Apache Iceberg table spec, "Column Projection".
"""

import dataclasses
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bearlake.errors import Conflict, Corrupt, Invalid
from bearlake.objects import ByteRange
from bearlake.table import file_end
from bearlake.table.column_arrow import arrow_field, list_like, map_like, struct_like
from bearlake.table.current_columns import CurrentColumns
from bearlake.table.current_state import SCHEMA as PLACES
from bearlake.table.current_state import Places
from bearlake.table.envelope import unwrapped
from bearlake.table.file_budget import FileBudget
from bearlake.table.file_end import UNREADABLE
from bearlake.table.row_slices import slices
from bearlake.table.schema import (
    ARROW_SCHEMA,
    BATCH,
    FIELD_IDS,
    KEY,
    KEY_SCHEMA_ID,
    METADATA_KEY,
    OFFSET,
    PARTITION_ID,
    SCHEMA_ID,
    TIMESTAMP,
    VALUE,
)
from bearlake.table.sparse import SparseFile
from bearlake.table.typed_footer import FOOTER_NAME, TypedFooter, decode_footer
from bearlake.table.typed_rows import restored, restored_keys

IS_TOMBSTONE: Final = "_is_tombstone"
"""Column of read rows: the record deletes its key."""
_PLACE_COLUMNS: Final = (KEY, PARTITION_ID, OFFSET, TIMESTAMP)
OWN_SCHEMA: Final = ARROW_SCHEMA.remove(ARROW_SCHEMA.get_field_index(BATCH))
"""Our own columns of a current table."""


def current_schema(columns: CurrentColumns) -> pa.Schema:
    """Return the columns of a current table's data files."""
    return pa.schema([*OWN_SCHEMA, *map(arrow_field, columns.columns)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """A data file's footer. `typed`: what our own files with typed columns say about them."""

    metadata: pq.FileMetaData
    crcs: "array[int]"
    """CRC-32Cs of the column chunks by row group; empty: the file has none."""
    names: Mapping[int, str]
    """Names of the columns by field id."""
    typed: TypedFooter | None
    budget: FileBudget = dataclasses.field(compare=False)
    """What reading the file may cost; all its row groups share it."""

    def text(self, name: str) -> bytes | None:
        """Return a value of the file's key-value metadata."""
        found: bytes | None = (self.metadata.metadata or {}).get(name.encode())
        return found

    def groups_with(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[int]:
        """Return the row groups that may have rows of a partition (by index) with offsets from its start up to its end."""
        groups = range(self.metadata.num_row_groups)
        return [at for at in groups if self.metadata.row_group(at).num_rows and self._may_have(at, starts, ends)]

    def _may_have(self, group: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> bool:
        partitions = self._bounds(group, PARTITION_ID)
        offsets = self._bounds(group, OFFSET)
        return any(
            (partitions is None or partitions[0] <= index <= partitions[1])
            and (offsets is None or (offsets[0] < end and offsets[1] >= starts.get(index, 0)))
            for index, end in ends.items()
            if starts.get(index, 0) < end
        )

    def place_ranges(self, group: int) -> list[ByteRange]:
        """Return the byte ranges that `read_places` needs."""
        return self._ranges(group, self.place_columns(group))

    def place_columns(self, group: int) -> list[str]:
        """Return the columns that `read_places` needs."""
        found = [name for column in _PLACE_COLUMNS if (name := self.names.get(FIELD_IDS[column])) is not None]
        if self.typed is not None and not self.typed.has_keys(group):
            found += self.typed.key_columns
        elif KEY_SCHEMA_ID in self.names.values():
            found.append(KEY_SCHEMA_ID)
        return list(dict.fromkeys(found))

    def row_range(self, group: int) -> ByteRange:
        """Return the byte range of a row group."""
        (found,) = _joined(self._chunks(group, None), is_whole=True)
        return found

    def _ranges(self, group: int, columns: Collection[str]) -> list[ByteRange]:
        return _joined(self._chunks(group, columns))

    def _chunks(self, group: int, columns: Collection[str] | None) -> list[ByteRange]:
        return sorted(
            chunk
            for at, chunk in enumerate(file_end.chunks(self.metadata, group))
            if columns is None or file_end.is_in(self.metadata.schema.column(at).path, columns)
        )

    def _bounds(self, group: int, name: str) -> tuple[int, int] | None:
        own = self.names.get(FIELD_IDS[name])
        row_group = self.metadata.row_group(group)
        for at in range(row_group.num_columns):
            column = row_group.column(at)
            if column.path_in_schema == own:
                statistics = column.statistics
                return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None
        return None


def parse_file(tail: memoryview, size: int | None = None) -> RowFile:
    """Parse the footer; `tail` has the last bytes of the file, as many as are `file_end.needed`, of `size` (None: all).

    Raises `Corrupt`.
    """
    metadata, crcs = file_end.read(tail, is_ours=False)
    if size is not None and sum(_bytes(metadata)) > size:  # so columns and row groups that share bytes are few
        raise Corrupt("data file: its column chunks have more bytes than the file")
    try:
        fields = {id_: field for field in metadata.schema.to_arrow_schema() if (id_ := _id(field)) is not None}
        text = (metadata.metadata or {}).get(FOOTER_NAME)
    except UNREADABLE as error:
        raise Corrupt(f"footer of a data file: {error}") from error
    missing = [name for name in (PARTITION_ID, OFFSET, TIMESTAMP) if FIELD_IDS[name] not in fields]
    if missing:
        raise Corrupt(f"data file: it has no columns {', '.join(missing)}")
    if not all(pa.types.is_integer(fields[FIELD_IDS[name]].type) for name in (PARTITION_ID, OFFSET)):
        raise Corrupt(f"data file: {PARTITION_ID} and {OFFSET} must be integers")
    typed = None if text is None else decode_footer(text)
    if typed is not None:
        typed.check_groups(metadata.num_row_groups)
    names = {id_: field.name for id_, field in fields.items()}
    budget = FileBudget(len(tail) if size is None else size)
    return RowFile(metadata=metadata, crcs=crcs, names=names, typed=typed, budget=budget)


def _bytes(metadata: pq.FileMetaData) -> Iterator[int]:
    """Yield the bytes of the column chunks."""
    for group in range(metadata.num_row_groups):
        for start, end in file_end.chunks(metadata, group):
            yield max(0, end - start)


def read_places(file: SparseFile, footer: RowFile, group: int, bytes_max: int) -> Iterator[Places]:
    """Yield the complete keys of a row group, with their places, in slices; `file` has the bytes of `RowFile.place_ranges`.

    Raises:
        Corrupt: the rows cannot be decoded.
        Conflict: another engine has rewritten rows whose keys are left out.
        Invalid: a row takes more than `bytes_max` of memory, or rows whose values or keys are left out do.
        Unsupported: a column has an unknown type.
    """
    own = [footer.names[FIELD_IDS[name]] for name in (PARTITION_ID, OFFSET, TIMESTAMP)]
    for rows in _read(file, footer, group, footer.place_columns(group), bytes_max):
        with _readable(group):
            partitions, offsets, timestamps = (rows[name] for name in own)
            keys = _keys(rows, footer, group)
            yield pa.table([keys, partitions, offsets, timestamps.cast(pa.int64())], schema=PLACES)


def read_rows(
    file: SparseFile, footer: RowFile, group: int, columns: CurrentColumns, bytes_max: int
) -> Iterator[pa.Table]:
    """Yield the rows of a row group of the stream's table, as `current_schema`, with `IS_TOMBSTONE`; `file` has `RowFile.row_range`.

    Raises as `read_places`.
    """
    name = footer.names.get(FIELD_IDS[KEY])
    for rows in _read(file, footer, group, None, bytes_max):
        with _readable(group):
            if name is not None:
                keys = _keys(rows, footer, group)
                rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), keys)
            yield _as_current(rows, footer, group, columns)


def _as_current(rows: pa.Table, footer: RowFile, group: int, columns: CurrentColumns) -> pa.Table:
    schema = current_schema(columns)
    if columns.is_unwrapped:
        events = _arrays_by_id(_with_values_of_no_events(rows, footer, group, columns))
        return unwrapped(events, columns, schema, fitted_columns, IS_TOMBSTONE)
    found = fitted_columns(_arrays_by_id(rows), schema, rows.num_rows)
    is_tombstone = pc.is_null(found[schema.get_field_index(VALUE)])
    if SCHEMA_ID in schema.names:
        is_tombstone = pc.and_(is_tombstone, pc.is_null(found[schema.get_field_index(SCHEMA_ID)]))
    return pa.Table.from_arrays([*found, is_tombstone], schema=schema.append(pa.field(IS_TOMBSTONE, pa.bool_())))


def read_current(
    file: SparseFile, footer: RowFile, group: int, columns: CurrentColumns, bytes_max: int
) -> Iterator[pa.Table]:
    """Yield the rows of a row group of the current table, as `current_schema`. Raises as `read_places`."""
    schema = current_schema(columns)
    for rows in _read(file, footer, group, None, bytes_max):
        with _readable(group):
            yield pa.Table.from_arrays(fitted_columns(_arrays_by_id(rows), schema, rows.num_rows), schema=schema)


def fitted_columns(found: Mapping[int, tuple[pa.Field, pa.Array]], schema: pa.Schema, count: int) -> list[pa.Array]:
    """Return the columns of the schema, by field id; a column that is not `found` is null."""
    arrays = []
    for field in schema:
        known = found.get(_id(field) or 0)
        arrays.append(pa.nulls(count, field.type) if known is None else _fitted(known[1], known[0].type, field.type))
    return arrays


def _fitted(array: pa.Array, source: pa.DataType, target: pa.DataType) -> pa.Array:
    """Return the values in a type with the same field ids, which may have more fields, or wider ones. `array` begins at 0."""
    if source.equals(target):
        return array
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        places = {_id(source.field(at)): at for at in range(source.num_fields)}
        parts = []
        for field in target:
            at = places.get(_id(field))
            part = None if at is None else _fitted(array.field(at), source.field(at).type, field.type)
            parts.append(pa.nulls(len(array), field.type) if part is None else part)
        return struct_like(parts, list(target), array)
    if pa.types.is_list(target) and pa.types.is_list(source):
        return list_like(array, _fitted(array.values, source.value_type, target.value_type), target)
    if pa.types.is_map(target) and pa.types.is_map(source):
        items = _fitted(array.items, source.item_type, target.item_type)
        return map_like(array, _fitted(array.keys, source.key_type, target.key_type), items, target)
    if isinstance(array, pa.ExtensionArray):
        return _fitted(array.storage, array.storage.type, target)
    return array.cast(target)


def _keys(rows: pa.Table, footer: RowFile, group: int) -> pa.Array:
    name = footer.names.get(FIELD_IDS[KEY])
    keys = pa.nulls(rows.num_rows, pa.binary()) if name is None else _piece(rows[name])
    if footer.typed is not None:
        return keys if footer.typed.has_keys(group) else restored_keys(rows, footer.typed, group)
    if KEY_SCHEMA_ID in rows.schema.names:
        ids = rows[KEY_SCHEMA_ID]
        if pc.any(pc.and_(pc.is_null(keys), pc.is_valid(_piece(ids)))).as_py():
            raise Conflict("another engine has rewritten rows whose keys are left out: set table.key.mode=keep")
    return keys


def _with_values_of_no_events(rows: pa.Table, footer: RowFile, group: int, columns: CurrentColumns) -> pa.Table:
    """Return the rows with the bytes of values that are no events: a current table of events has no columns for their content.

    `rows` has all columns of the row group.
    """
    if footer.typed is None or footer.typed.has_values(group):
        return rows
    at = rows.schema.get_field_index(footer.names[FIELD_IDS[VALUE]])
    operation = footer.names.get(columns.operation_id)
    is_left_out = pc.and_(pc.is_null(rows[at]), pc.is_valid(rows[SCHEMA_ID]))
    if operation is not None:
        is_left_out = pc.and_(is_left_out, pc.is_null(rows[operation]))
    if not pc.any(is_left_out).as_py():
        return rows
    return rows.set_column(at, rows.schema.field(at), restored(rows, footer.typed, group)[VALUE])


def _arrays_by_id(rows: pa.Table) -> dict[int, tuple[pa.Field, pa.Array]]:
    return {
        id_: (field, _piece(column))
        for field, column in zip(rows.schema, rows.columns, strict=True)
        if (id_ := _id(field)) is not None
    }


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(METADATA_KEY)
    return None if text is None else int(text)


def _piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array that begins at 0."""
    if column.num_chunks == 1 and column.chunk(0).offset == 0:
        return column.chunk(0)
    return pa.concat_arrays([*column.chunks, pa.array([], column.type)])


def _read(
    file: SparseFile, footer: RowFile, group: int, columns: Sequence[str] | None, bytes_max: int
) -> Iterator[pa.Table]:
    """Yield the rows of a row group in slices; in one if values or keys are left out, since their CRC is that of the row group."""
    file_end.check_chunks(file, footer.metadata, footer.crcs, group)
    with _readable(group):
        found = slices(file, footer.metadata, group, columns, bytes_max, footer.budget)
        yield from found if footer.typed is None else _joined_rows(found, group, bytes_max)


def _joined_rows(found: Iterator[pa.Table], group: int, bytes_max: int) -> Iterator[pa.Table]:
    tables, size = [], 0
    for table in found:
        tables.append(table)
        size += table.nbytes
        if size > bytes_max:
            raise Invalid(
                f"data file, row group {group}: its rows, whose values or keys are left out, take {size} bytes of memory or more; "
                f"the limit is compaction.task.current_bytes, {bytes_max} bytes"
            )
    if tables:
        yield pa.concat_tables(tables).combine_chunks() if len(tables) > 1 else tables[0]


@contextmanager
def _readable(group: int) -> Iterator[None]:
    """Translate errors of pyarrow."""
    try:
        yield
    except UNREADABLE as error:
        raise Corrupt(f"data file, row group {group}: {error}") from error


def _joined(ranges: Sequence[ByteRange], *, is_whole: bool = False) -> list[ByteRange]:
    """Return the ranges with adjacent ones joined; `is_whole`: all in one."""
    found: list[ByteRange] = []
    for piece in ranges:
        if found and (is_whole or found[-1].end >= piece.start):
            found[-1] = ByteRange(found[-1].start, max(found[-1].end, piece.end))
        else:
            found.append(piece)
    return found
