"""Reads rows of row groups that any engine may have written, in slices of bounded memory: a few bytes of a file can stand for any number.

`decoding_plan.py` bounds the rows that Arrow decodes at once, with texts as indices into dictionaries. Here these rows are divided further
until their texts fit.

Pure functions for a thread.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bearlake.errors import Unsupported
from bearlake.table.column_arrow import list_like, map_like, struct_like
from bearlake.table.decoding_plan import plan, too_large
from bearlake.table.file_budget import FileBudget
from bearlake.table.sparse import SparseFile

_SLICES_IN_MEMORY = 4
"""A slice is copied while its columns get their types, and while its rows are chosen."""


def slices(
    file: SparseFile,
    metadata: pq.FileMetaData,
    group: int,
    names: Sequence[str] | None,
    bytes_max: int,
    budget: FileBudget,
) -> Iterator[pa.Table]:
    """Yield the rows of a row group, with the columns `names` (None: all), in order. `file` has their bytes, `budget` is the file's.

    Memory: `bytes_max` for rows as Arrow decodes them, and as much for a slice and its copies; a slice with one row may be larger.
    Raises errors of pyarrow, and:

        Corrupt: the headers of pages are damaged, or of an unknown kind.
        Invalid: a row takes more than `bytes_max`, or all rows more than the budget has.
        Unsupported: dictionaries are in a column of an unknown type.
    """
    if metadata.row_group(group).num_rows == 0:
        return
    found = plan(file, metadata, group, names, bytes_max, budget)
    source = pq.ParquetFile(
        pa.PythonFile(file, mode="r"), metadata=metadata, pre_buffer=False, read_dictionary=list(found.indexed)
    )
    columns = None if names is None else list(names)
    batches = source.iter_batches(found.row_count, row_groups=[group], columns=columns, use_threads=False)
    # No variable keeps a batch while the next one is decoded, as that of a loop would
    parts = partial(_slices_of, once=found.once, group=group, bytes_max=bytes_max, budget=budget)
    yield from chain.from_iterable(map(parts, batches))


def _slices_of(
    batch: pa.RecordBatch, *, once: int, group: int, bytes_max: int, budget: FileBudget
) -> Iterator[pa.Table]:
    budget.decoded(once + batch.nbytes, group)
    return _fitting(pa.Table.from_batches([batch]), group, bytes_max, budget)


def _fitting(rows: pa.Table, group: int, bytes_max: int, budget: FileBudget) -> Iterator[pa.Table]:
    """Yield the rows without dictionaries, in slices that fit."""
    sizes = [sum(map(_plain_bytes, column.chunks)) for column in rows.columns]
    if sum(sizes) <= bytes_max // _SLICES_IN_MEMORY or rows.num_rows <= 1:
        if sum(sizes) > bytes_max:
            largest = max(sizes)
            raise too_large(group, rows.schema.names[sizes.index(largest)], largest, sum(sizes), bytes_max)
        budget.decoded(sum(sizes), group)
        yield _plain_rows(rows)
        return
    half = rows.num_rows // 2
    for start, end in ((0, half), (half, rows.num_rows)):
        yield from _fitting(_copied(rows, start, end), group, bytes_max, budget)


def _copied(rows: pa.Table, start: int, end: int) -> pa.Table:
    """Return the rows `[start, end)` in memory of their own, which begins with them."""
    places = pc.indices_nonzero(pa.repeat(pa.scalar(True), rows.num_rows))
    return rows.take(places.slice(start, end - start))


def _plain_bytes(array: pa.Array) -> int:
    """Return the memory of the values without dictionaries."""
    found = array.type
    if not _has_dictionary(found):
        return int(array.nbytes)
    if pa.types.is_dictionary(found):
        if not _is_text(found.value_type):
            return int(len(array) * (found.value_type.bit_width + 7) // 8)
        texts = pc.sum(pc.binary_length(array.dictionary).cast(pa.int64()).take(array.indices)).as_py()
        return (texts or 0) + int(array.indices.nbytes)
    if pa.types.is_struct(found):
        return sum(map(_plain_bytes, array.flatten()))
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    parts = [array.keys, array.items] if pa.types.is_map(found) else [array.values]
    return int(offsets.nbytes) + sum(_plain_bytes(part.slice(start, end - start)) for part in parts)


def _plain_rows(rows: pa.Table) -> pa.Table:
    if not any(_has_dictionary(found) for found in rows.schema.types):
        return rows
    if any(chunk.offset for column in rows.columns for chunk in column.chunks):
        rows = _copied(rows, 0, rows.num_rows)
    columns = [
        pa.chunked_array([_plain(chunk) for chunk in column.chunks], _plain_type(column.type))
        for column in rows.columns
    ]
    fields = [field.with_type(column.type) for field, column in zip(rows.schema, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _plain(array: pa.Array) -> pa.Array:
    """Return the values without dictionaries; `array` begins at 0."""
    found = array.type
    if not _has_dictionary(found):
        return array
    if pa.types.is_dictionary(found):
        return array.dictionary_decode()
    target = _plain_type(found)
    if pa.types.is_struct(found):
        return struct_like([_plain(array.field(at)) for at in range(found.num_fields)], list(target), array)
    if pa.types.is_map(found):
        return map_like(array, _plain(array.keys), _plain(array.items), target)
    return list_like(array, _plain(array.values), target)


def _plain_type(found: pa.DataType) -> pa.DataType:
    if not _has_dictionary(found):
        return found
    if pa.types.is_dictionary(found):
        return found.value_type
    if pa.types.is_struct(found):
        return pa.struct([_plain_field(field) for field in found])
    if pa.types.is_map(found):
        return pa.map_(_plain_field(found.key_field), _plain_field(found.item_field))
    value = _plain_field(found.value_field)
    return pa.large_list(value) if pa.types.is_large_list(found) else pa.list_(value)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


def _has_dictionary(found: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        return True
    inner = [found.field(at).type for at in range(found.num_fields)]
    has_dictionary = any(_has_dictionary(type_) for type_ in inner)
    if has_dictionary and not any(
        is_known(found) for is_known in (pa.types.is_struct, pa.types.is_map, pa.types.is_list, pa.types.is_large_list)
    ):
        raise Unsupported(f"texts in a column of type {found}")
    return has_dictionary


def _is_text(found: pa.DataType) -> bool:
    return any(
        is_text(found)
        for is_text in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    )
