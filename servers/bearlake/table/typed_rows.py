"""Rows with typed columns in memory, and in a data file, whose values and keys may be left out (I6).

    in memory   our seven columns, `_schema_id`, `_error`, the typed columns of values, `_is_elided`;  `_value` is complete
                with columns of keys, before `_is_elided`: `_key_schema_id`, the typed columns of keys; at the end `_is_key_elided`
    in a file   the same without the last ones;  `_value` is null where `_is_elided` was true, `_key` where `_is_key_elided` was

A value that was left out has a `_schema_id`, which a tombstone has not. Its bytes are those of the typed columns, encoded with the schema
of that id, after the header (and the path of a Protobuf message) if the schema's values are framed. The file's footer has what is needed to
do so, and for each row group the CRC-32C of its values' bytes and of their ends, so that no rot and no other encoder goes unnoticed. No
registry is needed (`typed_footer.py`). The same holds for keys and `_key_schema_id`.

Pure functions for a thread.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.table.column_arrow import arrow_field, gather, scatter
from bearlake.table.column_book import ColumnBook
from bearlake.table.column_tree import Column, holds_unchanged
from bearlake.table.schema import ARROW_SCHEMA, ERROR, KEY, KEY_SCHEMA_ID, METADATA_KEY, SCHEMA_ID, VALUE
from bearlake.table.typed_footer import TypedFooter, footer_text
from bearlake.table.value_codecs import SchemaUnusable, codec_of
from bearlake.table.value_plan import FileColumns, WriterSchema

HEAD_BYTES: Final = 5
"""Bytes of the header of a framed value: 0 and the schema's id."""
IS_ELIDED: Final = "_is_elided"
IS_KEY_ELIDED: Final = "_is_key_elided"
_ID_AT: Final = len(ARROW_SCHEMA)
_ERROR_AT: Final = _ID_AT + 1


class _Part(NamedTuple):
    """Where rows have their values, or their keys: `at` the bytes, `id_at` the schema's id, from `start` on the typed `columns`."""

    at: int
    id_at: int
    start: int
    columns: Sequence[Column]

    @property
    def end(self) -> int:
        return self.start + len(self.columns)


def _parts(book: ColumnBook) -> list[_Part]:
    values = _Part(ARROW_SCHEMA.get_field_index(VALUE), _ID_AT, _ERROR_AT + 1, book.columns)
    if book.key is None:
        return [values]
    return [values, _Part(ARROW_SCHEMA.get_field_index(KEY), values.end, values.end + 1, book.key.columns)]


def _schemas(columns: FileColumns) -> list[Mapping[int, WriterSchema]]:
    """Return the schemas of each part."""
    return [columns.schemas] if columns.book.key is None else [columns.schemas, columns.key_schemas]


def head(schema_id: int) -> bytes:
    """Return the header of a framed value."""
    return b"\0" + schema_id.to_bytes(4)


def prefix_of(schema_id: int, schema: WriterSchema) -> bytes:
    """Return what stands before a value's own bytes: nothing, or the header, and of Protobuf the message's path."""
    return head(schema_id) + codec_of(schema).message_prefix if schema.is_framed else b""


def file_schema(book: ColumnBook) -> pa.Schema:
    """Return the columns of a data file."""
    own = [
        pa.field(SCHEMA_ID, pa.int32(), metadata={METADATA_KEY: str(book.schema_id).encode()}),
        pa.field(ERROR, pa.string(), metadata={METADATA_KEY: str(book.error_id).encode()}),
    ]
    fields = [*ARROW_SCHEMA, *own, *map(arrow_field, book.columns)]
    if book.key is not None:
        own_key = pa.field(KEY_SCHEMA_ID, pa.int32(), metadata={METADATA_KEY: str(book.key.schema_id).encode()})
        fields += [own_key, *map(arrow_field, book.key.columns)]
    return pa.schema(fields)


def memory_schema(book: ColumnBook) -> pa.Schema:
    """Return the columns of rows in memory."""
    schema = file_schema(book).append(pa.field(IS_ELIDED, pa.bool_()))
    return schema if book.key is None else schema.append(pa.field(IS_KEY_ELIDED, pa.bool_()))


class TypedPart(NamedTuple):
    """The typed columns of the values, or the keys, of rows in memory."""

    ids: pa.Array
    columns: Sequence[pa.Array]
    is_elided: pa.Array


def typed_rows(
    rows: pa.RecordBatch | pa.Table, book: ColumnBook, errors: pa.Array, value: TypedPart, key: TypedPart | None
) -> pa.Table:
    """Return rows in memory from our seven columns and the typed ones. `key`: given if the book has columns of keys."""
    arrays = [*rows.columns, value.ids, errors, *value.columns]
    if key is not None:
        arrays += [key.ids, *key.columns]
    arrays += [part.is_elided for part in (value, key) if part is not None]
    return pa.Table.from_arrays(arrays, schema=memory_schema(book))


def untyped_part(columns: Sequence[Column], count: int) -> TypedPart:
    """Return the typed columns of `count` rows that have none."""
    nulls = [pa.nulls(count, arrow_field(column).type) for column in columns]
    return TypedPart(pa.nulls(count, pa.int32()), nulls, pa.repeat(pa.scalar(False), count))


class TypedFileRows:
    """The row groups of one data file: turns rows in memory into rows of the file, and writes the footer's text."""

    def __init__(self, columns: FileColumns) -> None:
        self._columns = columns
        self._schema = file_schema(columns.book)
        self._parts = _parts(columns.book)
        self._crcs: list[list[tuple[int, int] | None]] = [[] for _ in self._parts]
        self._used: list[set[int]] = [set() for _ in self._parts]
        self._sizes: list[int] = []
        self._key_bytes: list[int] = []

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file."""
        return self._schema

    def elided(self, rows: pa.Table) -> pa.Table:
        """Return a row group's rows as the file has them."""
        self._sizes.append(rows.nbytes)
        if self._columns.book.key is not None:
            self._key_bytes.append(pc.sum(pc.binary_length(rows.column(KEY))).as_py() or 0)
        end = rows.num_columns - len(self._parts)
        flags = [_piece(column) for column in rows.columns[end:]]
        rows = rows.select(range(end))
        for part, is_elided, crcs, used in zip(self._parts, flags, self._crcs, self._used, strict=True):
            if not pc.any(is_elided).as_py():
                crcs.append(None)
                continue
            values = _piece(rows.column(part.at))
            crcs.append(_crcs(values))
            used.update(pc.unique(rows.column(part.id_at).filter(is_elided)).to_pylist())
            is_all = pc.all(is_elided).as_py()
            kept = pa.nulls(len(values), pa.binary()) if is_all else pc.if_else(is_elided, None, values)
            rows = rows.set_column(part.at, ARROW_SCHEMA.field(part.at), kept)
        return rows

    def footer(self) -> dict[str, str]:
        """Return the key-value metadata of the file, which has the schemas of the values that were left out."""
        schemas = [
            {id_: known[id_] for id_ in sorted(used)}
            for known, used in zip(_schemas(self._columns), self._used, strict=True)
        ]
        is_keyed = self._columns.book.key is not None
        return footer_text(
            TypedFooter(
                columns=FileColumns(
                    book=self._columns.book, schemas=schemas[0], key_schemas=schemas[1] if is_keyed else {}
                ),
                crcs=self._crcs[0],
                sizes=self._sizes,
                key_crcs=self._crcs[1] if is_keyed else (),
                key_bytes=self._key_bytes,
            )
        )


def restored(rows: pa.Table, footer: TypedFooter, group: int) -> pa.Table:
    """Return a row group's rows of a file with complete values and keys, `_is_elided` and, with columns of keys, `_is_key_elided`.

    Raises:
        Corrupt: the values or keys are not those that were written.
    """
    pieces, flags = _pieces(rows, footer, group)
    return pa.Table.from_arrays([*pieces, *flags], schema=memory_schema(footer.columns.book))


def completed(rows: pa.Table, footer: TypedFooter, group: int) -> pa.Table:
    """Return our columns of a row group's rows of a file, with complete values and keys. Raises as `restored`.

    Unlike `restored`, it takes typed columns with dictionaries.
    """
    pieces, _ = _pieces(rows, footer, group)
    return pa.Table.from_arrays(pieces[: len(ARROW_SCHEMA)], schema=ARROW_SCHEMA)


def restored_keys(rows: pa.Table, footer: TypedFooter, group: int) -> pa.BinaryArray:
    """Return the complete keys of a row group's rows, which have `TypedFooter.key_columns`. Raises as `restored`.

    The typed columns may have dictionaries.
    """
    key = footer.columns.book.key
    assert key is not None
    keys, ids, *typed = (_piece(rows[name]) for name in footer.key_columns)
    schemas, crc = footer.columns.key_schemas, footer.key_crcs[group]
    return _restored(keys, TypedPart(ids, typed, None), key.columns, schemas, crc, group)[0]


def _pieces(rows: pa.Table, footer: TypedFooter, group: int) -> tuple[list[pa.Array], list[pa.BooleanArray]]:
    """Return a row group's columns with complete values and keys, and which of them the file leaves out. Raises `Corrupt`."""
    columns = footer.columns
    pieces = [_piece(column) for column in rows.columns]
    flags = []
    for part, schemas, crcs in zip(
        _parts(columns.book), _schemas(columns), (footer.crcs, footer.key_crcs), strict=False
    ):
        typed = TypedPart(pieces[part.id_at], pieces[part.start : part.end], None)
        crc = crcs[group] if group < len(crcs) else None
        pieces[part.at], is_elided = _restored(pieces[part.at], typed, part.columns, schemas, crc, group)
        flags.append(is_elided)
    return pieces, flags


def _restored(
    values: pa.BinaryArray,
    typed: TypedPart,
    columns: Sequence[Column],
    schemas: Mapping[int, WriterSchema],
    crc: tuple[int, int] | None,
    group: int,
) -> tuple[pa.BinaryArray, pa.BooleanArray]:
    """Return complete values, or keys, and which of them the file leaves out. Raises `Corrupt`."""
    if crc is not None and (schema_id := _schema_of_all(values, typed.ids)) is not None:
        values = _encoded_all(typed.columns, columns, schemas, schema_id)
        if _crcs(values) != crc:
            raise Corrupt(f"data file, row group {group}: the CRC of its values or keys does not match")
        return values, pa.repeat(pa.scalar(True), len(values))
    is_elided = pc.and_(pc.is_null(values), pc.is_valid(typed.ids))
    if crc is not None:
        for schema_id in pc.unique(typed.ids.filter(is_elided)).to_pylist():
            mask = pc.and_(is_elided, pc.equal(pc.fill_null(typed.ids, -1), schema_id))
            encoded = _encoded(typed.columns, mask, columns, schemas, schema_id)
            values = encoded if len(encoded) == len(values) else pc.replace_with_mask(values, mask, encoded)
        if _crcs(values) != crc:
            raise Corrupt(f"data file, row group {group}: the CRC of its values or keys does not match")
    elif pc.any(is_elided).as_py():
        raise Corrupt(f"data file, row group {group}: values or keys are missing")
    return values, is_elided


def _schema_of_all(values: pa.BinaryArray, ids: pa.Int32Array) -> int | None:
    """Return the id of the schema of all rows, if all are left out; else None. Most row groups are like this."""
    if not len(values) or values.null_count < len(values) or ids.null_count:
        return None
    bounds = pc.min_max(ids)
    low: int = bounds["min"].as_py()
    return low if bounds["max"].as_py() == low else None


def _encoded(
    typed: Sequence[pa.Array],
    mask: pa.BooleanArray,
    columns: Sequence[Column],
    schemas: Mapping[int, WriterSchema],
    schema_id: int,
) -> pa.BinaryArray:
    chosen = typed if pc.all(mask).as_py() else [array.filter(mask) for array in typed]
    return _encoded_all(chosen, columns, schemas, schema_id)


def _encoded_all(
    typed: Sequence[pa.Array], columns: Sequence[Column], schemas: Mapping[int, WriterSchema], schema_id: int
) -> pa.BinaryArray:
    schema = schemas.get(schema_id)
    if schema is None:
        raise Corrupt(f"data file: its footer does not have the schema {schema_id}")
    try:
        codec = codec_of(schema)
    except SchemaUnusable as error:
        raise Corrupt(f"data file: the schema {schema_id} in its footer: {error}") from error
    struct = gather(typed, columns, codec.fields, codec.struct)
    return codec.encoded(struct, prefix_of(schema_id, schema))


def conformed(rows: pa.Table, columns: FileColumns | None, target: FileColumns) -> pa.Table:
    """Return rows in memory with the columns of `target`, whose book is later. `columns`: those of the rows; None: they have none.

    Values whose schema `target` knows otherwise are not left out again. If columns have become wider, each value is proven again: a
    signalling NaN, for one, does not survive the way from float to double and back.
    """
    count, book = rows.num_rows, target.book
    own = [_piece(column) for column in rows.columns[: len(ARROW_SCHEMA)]]
    base = pa.RecordBatch.from_arrays(own, schema=ARROW_SCHEMA)
    target_parts = _parts(book)
    parts = [] if columns is None else _parts(columns.book)
    known = [] if columns is None else _schemas(columns)
    found: list[TypedPart] = []
    for at, (part, schemas) in enumerate(zip(parts, known, strict=True)):
        typed = TypedPart(
            _piece(rows.column(part.id_at)),
            [_piece(column) for column in rows.columns[part.start : part.end]],
            _piece(rows.column(rows.num_columns - len(parts) + at)),
        )
        goal = target_parts[at].columns
        found.append(_conformed(typed, own[part.at], part.columns, schemas, goal, _schemas(target)[at]))
    found += [untyped_part(part.columns, count) for part in target_parts[len(found) :]]
    errors = pa.nulls(count, pa.string()) if columns is None else _piece(rows.column(_ERROR_AT))
    return typed_rows(base, book, errors, found[0], found[1] if book.key is not None else None)


def _conformed(
    typed: TypedPart,
    values: pa.BinaryArray,
    columns: Sequence[Column],
    schemas: Mapping[int, WriterSchema],
    goal: Sequence[Column],
    goal_schemas: Mapping[int, WriterSchema],
) -> TypedPart:
    """Return the typed columns of values, or keys, as `conformed` does."""
    ids, arrays, is_elided = typed
    others = [id_ for id_, schema in schemas.items() if goal_schemas.get(id_) != schema]
    if others:
        is_elided = pc.and_(is_elided, pc.invert(pc.is_in(ids, pa.array(others, pa.int32()))))
    if arrays:
        fields = [arrow_field(column) for column in columns]
        arrays = scatter(pa.StructArray.from_arrays(arrays, fields=fields), columns, goal)
    else:
        arrays = [pa.nulls(len(values), arrow_field(column).type) for column in goal]
    if not holds_unchanged(goal, columns):
        is_elided = _proven(TypedPart(ids, arrays, is_elided), values, goal, goal_schemas)
    return TypedPart(ids, arrays, is_elided)


def _proven(
    typed: TypedPart, values: pa.BinaryArray, columns: Sequence[Column], schemas: Mapping[int, WriterSchema]
) -> pa.BooleanArray:
    """Return which of the elided values the typed columns give back."""
    found = typed.is_elided
    for schema_id in pc.unique(typed.ids.filter(typed.is_elided)).to_pylist():
        mask = pc.and_(typed.is_elided, pc.equal(pc.fill_null(typed.ids, -1), schema_id))
        expected = values.filter(mask)
        try:
            equal = pc.equal(_encoded(typed.columns, mask, columns, schemas, schema_id), expected)
        except Corrupt:  # a value that does not fit: all of the schema keep their bytes
            equal = pa.array([False] * len(expected), pa.bool_())
        found = pc.replace_with_mask(found, mask, pc.fill_null(equal, False))
    return found


def merged_columns(found: Sequence[FileColumns]) -> FileColumns | None:
    """Return columns for the rows of several files of a stream; None if none has typed columns."""
    if not found:
        return None
    schemas: dict[int, WriterSchema] = {}
    key_schemas: dict[int, WriterSchema] = {}
    for columns in found:
        for id_, schema in columns.schemas.items():
            schemas.setdefault(id_, schema)
        for id_, schema in columns.key_schemas.items():
            key_schemas.setdefault(id_, schema)
    book = max((columns.book for columns in found), key=lambda book: book.version)
    return FileColumns(book=book, schemas=schemas, key_schemas=key_schemas)


def _piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array that begins at 0, without a copy if it is one."""
    if column.num_chunks == 1 and column.chunk(0).offset == 0:
        return column.chunk(0)
    return pa.concat_arrays([*column.chunks, pa.array([], column.type)])


def _crcs(values: pa.BinaryArray) -> tuple[int, int]:
    """Return the CRCs of all bytes, and of where each value ends (32-bit little-endian, from 0; a null is empty)."""
    values = pc.fill_null(values, b"")
    _, offsets, octets = values.buffers()
    ends = memoryview(offsets).cast("B")[4 * values.offset :][: 4 * (len(values) + 1)]
    if any(ends[:4]):  # a slice: a copy begins at 0
        return _crcs(pa.concat_arrays([values, pa.array([], pa.binary())]))
    size = int.from_bytes(ends[-4:], "little")
    content = memoryview(b"") if octets is None else memoryview(octets).cast("B")
    return kernel.crc32c(content, 0, size), kernel.crc32c(ends, 0, len(ends))
