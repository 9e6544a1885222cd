"""Declared columns (`table/declared.py`) as typed columns: their values are JSON objects.

| declared | in JSON |
|---|---|
| boolean, string, struct, list, map<string, …> | the same: an object for struct and map |
| int, long, float, double | a number that fits |
| decimal(p,s) | a number, or a text with one |
| date, timestamptz, timestamp | a text: 2026-11-28, 2026-11-28T09:30:00Z, 2026-11-28T09:30:00 |
| uuid, binary | a text: with hyphens, in base64 |
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from bearlake.errors import Invalid
from bearlake.kernel import TypedKind, TypedNode
from bearlake.table.column_tree import Column, ColumnType, ListOf, MapOf, StructOf
from bearlake.table.declared import declared_columns
from bearlake.table.typed.model import SchemaError, SchemaType, TypedColumns, TypedField

_LEAVES: Final[Mapping[str, tuple[TypedKind, pa.DataType]]] = {
    "boolean": (TypedKind.BOOLEAN, pa.bool_()),
    "int": (TypedKind.INT, pa.int32()),
    "long": (TypedKind.LONG, pa.int64()),
    "float": (TypedKind.FLOAT, pa.float32()),
    "double": (TypedKind.DOUBLE, pa.float64()),
    "string": (TypedKind.STRING, pa.string()),
    "binary": (TypedKind.BYTES, pa.binary()),
    "date": (TypedKind.DATE, pa.date32()),
    "timestamp": (TypedKind.LOCAL_TIMESTAMP, pa.timestamp("us")),
    "timestamptz": (TypedKind.TIMESTAMP, pa.timestamp("us", tz="UTC")),
    "uuid": (TypedKind.UUID, pa.binary(16)),
}


def columns_of(text: str) -> TypedColumns:
    """Return the typed columns of a declaration. Raises `SchemaError`."""
    try:
        columns = declared_columns(text)
    except Invalid as error:
        raise SchemaError(str(error)) from error
    mapper = _Mapper()
    fields = mapper.root(columns)
    return TypedColumns(
        schema_type=SchemaType.JSON, fields=fields, nodes=tuple(mapper.nodes), paths=tuple(mapper.paths)
    )


class _Mapper:
    """Adds nodes, parents first."""

    def __init__(self) -> None:
        self.nodes: list[TypedNode] = []
        self.paths: list[str] = []

    def root(self, columns: Sequence[Column]) -> tuple[TypedField, ...]:
        """Add all columns."""
        index = self._add("")
        fields, self.nodes[index] = self._struct(columns, "")
        return fields

    def _add(self, path: str) -> int:
        self.nodes.append(TypedNode(TypedKind.JSON))
        self.paths.append(path)
        return len(self.nodes) - 1

    def _struct(self, columns: Sequence[Column], path: str) -> tuple[tuple[TypedField, ...], TypedNode]:
        made = [self._field(column.name, _join(path, column.name), column.type) for column in columns]
        names = tuple(column.name.encode() for column in columns)
        node = TypedNode(TypedKind.RECORD, children=tuple(index for index, _ in made), symbols=names)
        return tuple(field for _, field in made), node

    def _field(self, name: str, path: str, type_: ColumnType) -> tuple[int, TypedField]:
        index = self._add(path)
        children: tuple[TypedField, ...] = ()
        if isinstance(type_, StructOf):
            children, self.nodes[index] = self._struct(type_.fields, path)
            word, arrow = "struct", pa.struct([pa.field(child.name, child.arrow) for child in children])
        elif isinstance(type_, ListOf):
            below, element = self._field("element", _join(path, "element"), type_.element)
            self.nodes[index] = TypedNode(TypedKind.ARRAY, children=(below,))
            children, word, arrow = (element,), "list", pa.list_(pa.field("element", element.arrow))
        elif isinstance(type_, MapOf):
            (at, key), (over, value) = (
                self._field(part, _join(path, part), below)
                for part, below in (("key", type_.key), ("value", type_.value))
            )
            self.nodes[index] = TypedNode(TypedKind.MAP, children=(at, over))
            children, word = (key, value), "map"
            arrow = pa.map_(pa.string(), pa.field("value", value.arrow))
        else:
            word = type_
            self.nodes[index], arrow = _leaf(type_)
        field = TypedField(name=name, path=path, type=word, arrow=arrow, is_nullable=True, children=children)
        return index, field


def _leaf(type_: str) -> tuple[TypedNode, pa.DataType]:
    if type_.startswith("decimal("):
        precision, scale = map(int, type_[len("decimal(") : -1].split(","))
        return TypedNode(TypedKind.DECIMAL, size=scale, precision=precision), pa.decimal128(precision, scale)
    kind, arrow = _LEAVES[type_]
    return TypedNode(kind), arrow


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
