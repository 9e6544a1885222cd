"""Typed columns in Arrow: columns with field ids, and the values of a schema in and out of the columns.

    struct of one writer's schema  ── scatter ──►  columns of the table   (null where the schema has no such field)
    columns of the table           ── gather ──►   struct of one writer's schema

Both find the columns by `column_tree.column_of`, so a file's own columns suffice to read it, whatever was added since.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from bearlake.errors import Corrupt
from bearlake.table.column_tree import Column, ColumnType, ListOf, MapOf, StructOf, column_of
from bearlake.table.schema import METADATA_KEY

_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "uuid": pa.binary(16),
}


def arrow_field(column: Column) -> pa.Field:
    """Return the column with its field ids, as it is written to data files."""
    return _field(column.name, column.id, arrow_type(column.type))


def arrow_type(found: ColumnType) -> pa.DataType:
    """Return a column's type with the field ids of what is in it."""
    if isinstance(found, StructOf):
        return pa.struct([arrow_field(field) for field in found.fields])
    if isinstance(found, ListOf):
        return pa.list_(_field("element", found.element_id, arrow_type(found.element)))
    if isinstance(found, MapOf):
        key = pa.field("key", arrow_type(found.key), nullable=False, metadata=_id(found.key_id))
        return pa.map_(key, _field("value", found.value_id, arrow_type(found.value)))
    if found.startswith("decimal("):
        precision, scale = found[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if found.startswith("fixed["):
        return pa.binary(int(found[len("fixed[") : -1]))
    return _PRIMITIVES[found]


def _field(name: str, id_: int, found: pa.DataType) -> pa.Field:
    return pa.field(name, found, nullable=True, metadata=_id(id_))


def _id(id_: int) -> dict[bytes, bytes]:
    return {METADATA_KEY: str(id_).encode()}


def scatter(struct: pa.StructArray, fields: Sequence[Column], columns: Sequence[Column]) -> list[pa.Array]:
    """Return an array for each of `columns`, from the values of a schema with these `fields`; the struct has no nulls."""
    places = {id(column): at for at, field in enumerate(fields) if (column := column_of(columns, field)) is not None}
    return [
        _into(struct.field(places[id(column)]), fields[places[id(column)]].type, column.type)
        if id(column) in places
        else pa.nulls(len(struct), arrow_type(column.type))
        for column in columns
    ]


def gather(
    arrays: Sequence[pa.Array], columns: Sequence[Column], fields: Sequence[Column], struct: pa.StructType
) -> pa.StructArray:
    """Return the values of a schema with these `fields`, whose type is `struct`, from the arrays of `columns`.

    Texts with a dictionary keep it.

    Raises:
        Corrupt: a value does not fit, so another schema wrote it.
    """
    try:
        found = [
            _out(
                arrays[_place(columns, field)], columns[_place(columns, field)].type, field.type, struct.field(at).type
            )
            for at, field in enumerate(fields)
        ]
        return pa.StructArray.from_arrays(found, fields=[_like(*pair) for pair in zip(struct, found, strict=True)])
    except (pa.ArrowException, ValueError) as error:
        raise Corrupt(f"typed columns do not have the values of their schema: {error}") from error


def _place(columns: Sequence[Column], field: Column) -> int:
    column = column_of(columns, field)
    if column is None:
        raise Corrupt(f"data file: no column has the values of the field {field.source}")
    return columns.index(column)


def _into(array: pa.Array, source: ColumnType, column: ColumnType) -> pa.Array:
    """Return the values of a field in its column's type."""
    if isinstance(column, StructOf):
        assert isinstance(source, StructOf)
        parts = scatter(array, source.fields, column.fields)
        return struct_like(parts, list(arrow_type(column)), array)
    if isinstance(column, ListOf):
        assert isinstance(source, ListOf)
        return list_like(array, _into(array.values, source.element, column.element), arrow_type(column))
    if isinstance(column, MapOf):
        assert isinstance(source, MapOf)
        items = _into(array.items, source.value, column.value)
        return map_like(array, _into(array.keys, source.key, column.key), items, arrow_type(column))
    return array if array.type == arrow_type(column) else array.cast(arrow_type(column))


def _out(array: pa.Array, column: ColumnType, source: ColumnType, found: pa.DataType) -> pa.Array:
    """Return the values of a column in the field's type, which may be narrower."""
    if isinstance(column, StructOf):
        assert isinstance(source, StructOf)
        parts = [
            _out(
                array.field(_place(column.fields, field)),
                column.fields[_place(column.fields, field)].type,
                field.type,
                found.field(at).type,
            )
            for at, field in enumerate(source.fields)
        ]
        return struct_like(parts, [_like(*pair) for pair in zip(found, parts, strict=True)], array)
    if isinstance(column, ListOf):
        assert isinstance(source, ListOf)
        values = _out(array.values, column.element, source.element, found.value_type)
        return list_like(array, values, pa.list_(_like(found.value_field, values)))
    if isinstance(column, MapOf):
        assert isinstance(source, MapOf)
        items = _out(array.items, column.value, source.value, found.item_type)
        keys = _out(array.keys, column.key, source.key, found.key_type)
        return map_like(array, keys, items, pa.map_(_like(found.key_field, keys), _like(found.item_field, items)))
    if pa.types.is_dictionary(array.type) and array.type.value_type == found:
        return array
    return array if array.type == found else array.cast(found)


def _like(field: pa.Field, array: pa.Array) -> pa.Field:
    """Return the field with the type of its array, which may have dictionaries."""
    return field if array.type == field.type else field.with_type(array.type)


# Arrays from buffers: `from_arrays` copies, and refuses nulls of arrays that are slices. Arrays of `pq.read` and of codecs begin at 0.


def struct_like(parts: Sequence[pa.Array], fields: Sequence[pa.Field], like: pa.StructArray) -> pa.Array:
    """Return a struct of the parts, null where `like` is, which begins at 0."""
    assert like.offset == 0
    return pa.Array.from_buffers(
        pa.struct(list(fields)), len(like), like.buffers()[:1], null_count=like.null_count, children=list(parts)
    )


def list_like(like: pa.ListArray, values: pa.Array, found: pa.DataType) -> pa.Array:
    """Return lists of the type `found` with other values in the places of those of `like`."""
    return pa.Array.from_buffers(
        found, len(like), like.buffers()[:2], null_count=like.null_count, offset=like.offset, children=[values]
    )


def map_like(like: pa.MapArray, keys: pa.Array, items: pa.Array, found: pa.DataType) -> pa.Array:
    """Return maps of the type `found` with other keys and items in the places of those of `like`."""
    entries = pa.StructArray.from_arrays([keys, items], fields=[found.key_field, found.item_field])
    return pa.Array.from_buffers(
        found, len(like), like.buffers()[:2], null_count=like.null_count, offset=like.offset, children=[entries]
    )
