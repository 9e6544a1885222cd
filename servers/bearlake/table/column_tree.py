"""The typed columns of a table as a tree of fields with Iceberg's ids, and which types fit into which. Pure; no third-party types.

The same classes describe the fields of a schema, whose ids are 0. Primitive types are texts, as in Iceberg's JSON: `int`, `long`,
`float`, `double`, `boolean`, `string`, `binary`, `fixed[n]`, `uuid`, `date`, `timestamp`, `timestamptz`, `decimal(p,s)`.

A field of a schema belongs to the first column of the same source whose type is of the same *family*: types that Iceberg promotes into
each other, and structures of the same kind. Families never change, so a schema's fields belong to the same columns for ever.

Source: Apache Iceberg table spec, "Schemas and Data Types", "Schema Evolution".
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bearlake.errors import Corrupt

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WIDTHS = {"boolean": 1, "int": 4, "float": 4, "date": 4, "string": 4, "binary": 4, "uuid": 16}
"""Bytes of a null in memory, if not 8. Texts and bytes have their end only."""
_DECIMAL_BYTES = 16
_END_BYTES = 4
JSON_MARK = "\x1fjson"
"""Ends the source of a column of texts in JSON, so that a field that becomes a string is another column. No name of a field has it."""
_FIXED = re.compile(r"fixed\[(\d+)\]")
_PROMOTIONS = {("int", "long"), ("float", "double")}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of one. `source`: the name of the field in schemas; several columns may have the same source.

    After the name, `JSON_MARK` says that the column has texts in JSON, or is a list or map of them.
    """

    id: int
    name: str
    source: str
    type: "ColumnType"


@dataclass(frozen=True, slots=True)
class StructOf:
    """A struct."""

    fields: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list."""

    element_id: int
    element: "ColumnType"


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map. Keys are primitive."""

    key_id: int
    key: str
    value_id: int
    value: "ColumnType"


ColumnType: TypeAlias = str | StructOf | ListOf | MapOf


def promoted(left: str, right: str) -> str | None:
    """Return the primitive type that holds the values of both exactly, if one of them can be promoted to it; else None."""
    if left == right:
        return left
    for narrow, wide in _PROMOTIONS:
        if {left, right} == {narrow, wide}:
            return wide
    ours, theirs = _DECIMAL.fullmatch(left), _DECIMAL.fullmatch(right)
    if ours and theirs and ours[2] == theirs[2]:
        return left if int(ours[1]) >= int(theirs[1]) else right
    return None


def is_of_family(column: ColumnType, source: ColumnType) -> bool:
    """Return whether a field of type `source` belongs into a column of type `column`, which may have to become wider."""
    if isinstance(column, str) or isinstance(source, str):
        return isinstance(column, str) and isinstance(source, str) and promoted(column, source) is not None
    if isinstance(column, ListOf):
        return isinstance(source, ListOf) and is_of_family(column.element, source.element)
    if isinstance(column, MapOf):
        return isinstance(source, MapOf) and column.key == source.key and is_of_family(column.value, source.value)
    return isinstance(source, StructOf)


def column_of(columns: Sequence[Column], field: Column) -> Column | None:
    """Return the column to which a field of a schema belongs, or None if there is none yet."""
    for column in columns:
        if column.source == field.source and is_of_family(column.type, field.type):
            return column
    return None


def has_room(columns: Sequence[Column], fields: Sequence[Column]) -> bool:
    """Return whether all fields belong to columns that hold their values, at every level."""
    return _have_columns(columns, fields, lambda column, source: promoted(column, source) == column)


def holds_unchanged(columns: Sequence[Column], fields: Sequence[Column]) -> bool:
    """Return whether all fields belong to columns of exactly their type, at every level."""
    return _have_columns(columns, fields, str.__eq__)


def _have_columns(columns: Sequence[Column], fields: Sequence[Column], fits: Callable[[str, str], bool]) -> bool:
    """Return whether each field has a column, and `fits` (column, field) holds for all primitive types in them."""

    def is_held(column: ColumnType, source: ColumnType) -> bool:
        if isinstance(column, StructOf) and isinstance(source, StructOf):
            return _have_columns(column.fields, source.fields, fits)
        if isinstance(column, ListOf) and isinstance(source, ListOf):
            return is_held(column.element, source.element)
        if isinstance(column, MapOf) and isinstance(source, MapOf):
            return column.key == source.key and is_held(column.value, source.value)
        return isinstance(column, str) and isinstance(source, str) and fits(column, source)

    return all(
        (column := column_of(columns, field)) is not None and is_held(column.type, field.type) for field in fields
    )


def ids_of(columns: Sequence[Column]) -> Iterator[int]:
    """Yield all field ids of the columns and of what is in them."""
    for column in columns:
        yield column.id
        yield from type_ids(column.type)


def type_ids(found: ColumnType) -> Iterator[int]:
    """Yield the field ids inside a type."""
    if isinstance(found, StructOf):
        yield from ids_of(found.fields)
    elif isinstance(found, ListOf):
        yield found.element_id
        yield from type_ids(found.element)
    elif isinstance(found, MapOf):
        yield from (found.key_id, found.value_id)
        yield from type_ids(found.value)


def null_bytes(columns: Sequence[Column]) -> int:
    """Return the memory (bytes) of a row without values in these columns."""
    return sum(_null_bytes(column.type) for column in columns)


def _null_bytes(found: ColumnType) -> int:
    if isinstance(found, StructOf):
        return 1 + null_bytes(found.fields)
    if not isinstance(found, str):
        return _END_BYTES
    fixed = _FIXED.fullmatch(found)
    if fixed:
        return int(fixed[1])
    return _DECIMAL_BYTES if _DECIMAL.fullmatch(found) else _WIDTHS.get(found, 8)


def name_in_schemas(source: str) -> str:
    """Return the name of the field in schemas."""
    return source.removesuffix(JSON_MARK)


def word_of(field: Column) -> str:
    """Return a field's type as part of a column's name: `string`, `decimal_10_2`, `list`, `json`."""
    found = field.type
    if field.source.endswith(JSON_MARK):
        return "json"
    if isinstance(found, str):
        return re.sub(r"\W+", "_", found).strip("_")
    return {StructOf: "struct", ListOf: "list", MapOf: "map"}[type(found)]


def encode_columns(columns: Sequence[Column]) -> list[Any]:
    """Encode columns as JSON values."""
    return [[column.id, column.name, column.source, _encode(column.type)] for column in columns]


def decode_columns(encoded: Any) -> tuple[Column, ...]:
    """Decode columns. (Any: what `json.loads` returns.) Raises `Corrupt`."""
    try:
        return tuple(Column(int(id_), str(name), str(source), _decode(type_)) for id_, name, source, type_ in encoded)
    except (TypeError, ValueError, LookupError) as error:
        raise Corrupt(f"typed columns: {error!r}") from error


def _encode(found: ColumnType) -> Any:
    if isinstance(found, str):
        return found
    if isinstance(found, StructOf):
        return {"struct": encode_columns(found.fields)}
    if isinstance(found, ListOf):
        return {"list": [found.element_id, _encode(found.element)]}
    return {"map": [found.key_id, found.key, found.value_id, _encode(found.value)]}


def _decode(encoded: Any) -> ColumnType:
    if isinstance(encoded, str):
        return encoded
    ((kind, content),) = encoded.items()
    if kind == "struct":
        return StructOf(decode_columns(content))
    if kind == "list":
        return ListOf(int(content[0]), _decode(content[1]))
    if kind != "map":
        raise ValueError(kind)
    return MapOf(int(content[0]), str(content[1]), int(content[2]), _decode(content[3]))
