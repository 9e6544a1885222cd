"""Rows with typed columns in memory, and in a data file, whose values may be left out (I6).

    in memory   our seven columns, `_schema_id`, `_error`, the typed columns, `_is_elided`;  `_value` is complete
    in a file   the same without `_is_elided`;  `_value` is null where `_is_elided` was true

A value that was left out has a `_schema_id`, which a tombstone has not. Its bytes are those of the typed columns, encoded with the schema
of that id, after the header (and the path of a Protobuf message) if the schema's values are framed. The file's footer has what is needed to
do so, and for each row group the CRC-32C of its values' bytes and of their ends, so that no rot and no other encoder goes unnoticed. No
registry is needed.

    bearlake.typed   JSON: {"version": 1, "book_version": …, "book": …, "crcs": [[…, …] or null, …],
                     "sizes": [bytes of a row group's rows in memory, …],
                     "schemas": {id: [type, text, references, is framed, levels_max, columns_max]}}

Pure functions for a thread.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bearlake import kernel
from bearlake.errors import Corrupt, Unsupported
from bearlake.table.column_arrow import arrow_field, gather, scatter
from bearlake.table.column_book import ColumnBook, decode_book
from bearlake.table.column_tree import holds_unchanged
from bearlake.table.schema import ARROW_SCHEMA, ERROR, METADATA_KEY, SCHEMA_ID, VALUE
from bearlake.table.value_codecs import codec_of
from bearlake.table.value_plan import FileColumns, WriterSchema

FOOTER_NAME: Final = b"bearlake.typed"
FORMAT_VERSION: Final = 1
HEAD_BYTES: Final = 5
"""Bytes of the header of a framed value: 0 and the schema's id."""
IS_ELIDED: Final = "_is_elided"
_VALUE_AT = ARROW_SCHEMA.get_field_index(VALUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedFooter:
    """What the footer of a data file says about its typed columns.

    By row group: `crcs` (None: it has all its values), and `sizes`: the bytes of its rows in memory with all values, many times those of
    Parquet's pages.
    """

    columns: FileColumns
    crcs: Sequence[tuple[int, int] | None]
    sizes: Sequence[int]

    def has_values(self, group: int) -> bool:
        """Return whether the row group has all its values."""
        return group < len(self.crcs) and self.crcs[group] is None


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
    return pa.schema([*ARROW_SCHEMA, *own, *map(arrow_field, book.columns)])


def memory_schema(book: ColumnBook) -> pa.Schema:
    """Return the columns of rows in memory."""
    return file_schema(book).append(pa.field(IS_ELIDED, pa.bool_()))


def typed_rows(
    rows: pa.RecordBatch | pa.Table,
    book: ColumnBook,
    ids: pa.Array,
    errors: pa.Array,
    columns: Sequence[pa.Array],
    is_elided: pa.Array,
) -> pa.Table:
    """Return rows in memory from our seven columns and the typed ones."""
    return pa.Table.from_arrays([*rows.columns, ids, errors, *columns, is_elided], schema=memory_schema(book))


class TypedFileRows:
    """The row groups of one data file: turns rows in memory into rows of the file, and writes the footer's text."""

    def __init__(self, columns: FileColumns) -> None:
        self._columns = columns
        self._schema = file_schema(columns.book)
        self._crcs: list[tuple[int, int] | None] = []
        self._sizes: list[int] = []
        self._used: set[int] = set()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file."""
        return self._schema

    def elided(self, rows: pa.Table) -> pa.Table:
        """Return a row group's rows as the file has them."""
        self._sizes.append(rows.nbytes)
        is_elided = _piece(rows[IS_ELIDED])
        rows = rows.drop_columns([IS_ELIDED])
        if not pc.any(is_elided).as_py():
            self._crcs.append(None)
            return rows
        values = _piece(rows[VALUE])
        self._crcs.append(_crcs(values))
        self._used.update(pc.unique(rows[SCHEMA_ID].filter(is_elided)).to_pylist())
        is_all = pc.all(is_elided).as_py()
        kept = pa.nulls(len(values), pa.binary()) if is_all else pc.if_else(is_elided, None, values)
        return rows.set_column(_VALUE_AT, ARROW_SCHEMA.field(VALUE), kept)

    def footer(self) -> dict[str, str]:
        """Return the key-value metadata of the file, which has the schemas of the values that were left out."""
        book = self._columns.book
        fields = {
            "version": FORMAT_VERSION,
            "book_version": book.version,
            "book": book.encoded(),
            "schemas": {str(id_): list(self._columns.schemas[id_]) for id_ in sorted(self._used)},
            "crcs": [None if crc is None else list(crc) for crc in self._crcs],
            "sizes": self._sizes,
        }
        return {FOOTER_NAME.decode(): json.dumps(fields, separators=(",", ":"), ensure_ascii=False)}


def decode_footer(text: bytes) -> TypedFooter:
    """Decode the footer's text.

    Raises:
        Corrupt: not such a text.
        Unsupported: a newer format.
    """
    try:
        fields = json.loads(text)
        if fields["version"] != FORMAT_VERSION:
            raise Unsupported(f"data file: typed columns have format {fields['version']}; expected {FORMAT_VERSION}")
        schemas = {
            int(id_): WriterSchema(
                str(type_), str(text), tuple(map(str, references)), bool(is_framed), *map(int, limits)
            )
            for id_, (type_, text, references, is_framed, *limits) in fields["schemas"].items()
        }
        crcs = [None if crc is None else (int(crc[0]), int(crc[1])) for crc in fields["crcs"]]
        sizes = [int(size) for size in fields["sizes"]]
        columns = FileColumns(book=decode_book(fields["book"], int(fields["book_version"])), schemas=schemas)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Corrupt(f"data file: its typed columns: {error!r}") from error
    return TypedFooter(columns=columns, crcs=crcs, sizes=sizes)


def restored(rows: pa.Table, footer: TypedFooter, group: int) -> pa.Table:
    """Return a row group's rows of a file with complete values and `_is_elided`.

    Raises:
        Corrupt: the values are not those that were written.
    """
    columns = footer.columns
    pieces = [_piece(column) for column in rows.columns]
    values, ids = pieces[_VALUE_AT], pieces[len(ARROW_SCHEMA)]
    is_elided = pc.and_(pc.is_null(values), pc.is_valid(ids))
    crc = footer.crcs[group] if group < len(footer.crcs) else None
    if crc is not None:
        typed = pieces[len(ARROW_SCHEMA) + 2 :]
        for schema_id in pc.unique(ids.filter(is_elided)).to_pylist():
            mask = pc.and_(is_elided, pc.equal(pc.fill_null(ids, -1), schema_id))
            encoded = _encoded(typed, mask, columns, schema_id)
            values = encoded if len(encoded) == len(values) else pc.replace_with_mask(values, mask, encoded)
        if _crcs(values) != crc:
            raise Corrupt(f"data file, row group {group}: the CRC of its values does not match")
    elif pc.any(is_elided).as_py():
        raise Corrupt(f"data file, row group {group}: values are missing")
    pieces[_VALUE_AT] = values
    return pa.Table.from_arrays([*pieces, is_elided], schema=memory_schema(columns.book))


def _encoded(typed: Sequence[pa.Array], mask: pa.BooleanArray, columns: FileColumns, schema_id: int) -> pa.BinaryArray:
    schema = columns.schemas.get(schema_id)
    if schema is None:
        raise Corrupt(f"data file: its footer does not have the schema {schema_id}")
    codec = codec_of(schema)
    chosen = typed if pc.all(mask).as_py() else [array.filter(mask) for array in typed]
    struct = gather(chosen, columns.book.columns, codec.fields, codec.struct)
    return codec.encoded(struct, prefix_of(schema_id, schema))


def conformed(rows: pa.Table, columns: FileColumns | None, target: FileColumns) -> pa.Table:
    """Return rows in memory with the columns of `target`, whose book is later. `columns`: those of the rows; None: they have none.

    Values whose schema `target` knows otherwise are not left out again. If columns have become wider, each value is proven again: a
    signalling NaN, for one, does not survive the way from float to double and back.
    """
    count, book = rows.num_rows, target.book
    own = [_piece(column) for column in rows.columns[: len(ARROW_SCHEMA)]]
    base = pa.RecordBatch.from_arrays(own, schema=ARROW_SCHEMA)
    if columns is None:
        nulls = [pa.nulls(count, arrow_field(column).type) for column in book.columns]
        none = pa.array([False] * count, pa.bool_())
        return typed_rows(base, book, pa.nulls(count, pa.int32()), pa.nulls(count, pa.string()), nulls, none)
    ids, errors, *typed, is_elided = map(_piece, rows.columns[len(ARROW_SCHEMA) :])
    others = [id_ for id_, schema in columns.schemas.items() if target.schemas.get(id_) != schema]
    if others:
        is_elided = pc.and_(is_elided, pc.invert(pc.is_in(ids, pa.array(others, pa.int32()))))
    if typed:
        fields = [arrow_field(column) for column in columns.book.columns]
        typed = scatter(pa.StructArray.from_arrays(typed, fields=fields), columns.book.columns, book.columns)
    else:
        typed = [pa.nulls(count, arrow_field(column).type) for column in book.columns]
    if not holds_unchanged(book.columns, columns.book.columns):
        is_elided = _proven(typed, base.column(VALUE), ids, is_elided, target)
    return typed_rows(base, book, ids, errors, typed, is_elided)


def _proven(
    typed: Sequence[pa.Array],
    values: pa.BinaryArray,
    ids: pa.Int32Array,
    is_elided: pa.BooleanArray,
    columns: FileColumns,
) -> pa.BooleanArray:
    """Return which of the elided values the typed columns give back."""
    found = is_elided
    for schema_id in pc.unique(ids.filter(is_elided)).to_pylist():
        mask = pc.and_(is_elided, pc.equal(pc.fill_null(ids, -1), schema_id))
        expected = values.filter(mask)
        try:
            equal = pc.equal(_encoded(typed, mask, columns, schema_id), expected)
        except Corrupt:  # a value that does not fit: all of the schema keep their bytes
            equal = pa.array([False] * len(expected), pa.bool_())
        found = pc.replace_with_mask(found, mask, pc.fill_null(equal, False))
    return found


def merged_columns(found: Sequence[FileColumns]) -> FileColumns | None:
    """Return columns for the rows of several files of a stream; None if none has typed columns."""
    if not found:
        return None
    schemas: dict[int, WriterSchema] = {}
    for columns in found:
        for id_, schema in columns.schemas.items():
            schemas.setdefault(id_, schema)
    return FileColumns(book=max((columns.book for columns in found), key=lambda book: book.version), schemas=schemas)


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
