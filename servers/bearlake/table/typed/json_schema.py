"""JSON schemas as typed columns.

| JSON Schema | Iceberg |
|---|---|
| boolean, integer, number, string | boolean, long, double, string |
| string of format date, date-time, uuid | date, timestamptz, uuid |
| enum or const of one type | that type |
| object with properties | struct; at the top: the columns |
| object with additionalProperties or one patternProperties, and no properties | map of string |
| array of one schema of items | list |
| null and another type (as types, oneOf, anyOf) | the other type |
| $ref, allOf | what they point to, as parts of the schema |
| several types, other oneOf and anyOf, no type, objects without properties, arrays of several schemas | string: the text in JSON |
| a schema inside of itself, more than `levels_max` levels, a reference to nothing | string: the text in JSON |
| null alone, false | none |

A property whose name is empty, has more than 255 characters or characters that cannot be printed has no column. Other formats, and keywords
that check values, have no effect. If a schema has more than `columns_max` columns, its deepest levels become texts, so that the others fit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from bearlake.kernel import TypedKind, TypedNode
from bearlake.table.typed import json_documents
from bearlake.table.typed.fitting import Made, TooWide, most_levels
from bearlake.table.typed.json_documents import Place
from bearlake.table.typed.json_views import Steps, View, view_of
from bearlake.table.typed.model import COLUMNS_MAX, LEVELS_MAX, SchemaType, TypedColumns, TypedField
from bearlake.table.typed.naming import RESERVED, Names

NAME_LENGTH_MAX: Final = 255
_NODES_PER_COLUMN: Final = 4
"""Limit of nodes in the tree per column: structs and lists have no columns of their own."""
_LEAVES: Final[Mapping[str, tuple[TypedKind, str, pa.DataType]]] = {
    "boolean": (TypedKind.BOOLEAN, "boolean", pa.bool_()),
    "integer": (TypedKind.LONG, "long", pa.int64()),
    "number": (TypedKind.DOUBLE, "double", pa.float64()),
    "string": (TypedKind.STRING, "string", pa.string()),
    "date": (TypedKind.DATE, "date", pa.date32()),
    "date-time": (TypedKind.TIMESTAMP, "timestamptz", pa.timestamp("us", tz="UTC")),
    "uuid": (TypedKind.UUID, "uuid", pa.binary(16)),
    "json": (TypedKind.JSON, "string", pa.string()),
}
_SCALARS: Final = frozenset({"boolean", "integer", "number", "string"})
_FORMATS: Final = frozenset({"date", "date-time", "uuid"})


def columns_of(
    text: str,
    references: Sequence[str] = (),
    *,
    levels_max: int = LEVELS_MAX,
    columns_max: int = COLUMNS_MAX,
) -> TypedColumns:
    """Return the typed columns of a schema; `references` are those of `json_documents.reference_texts`. Raises `SchemaError`."""
    place = json_documents.load(text, references)
    steps = Steps()
    return most_levels(lambda levels: _Mapper(levels, columns_max, steps).columns(place), levels_max, columns_max)


class _Mapper:
    """Walks through a schema, adds its nodes parents first, and makes its fields."""

    def __init__(self, levels_max: int, columns_max: int, steps: Steps) -> None:
        self._levels_max = levels_max
        self._columns_max = columns_max
        self._nodes_max = columns_max * _NODES_PER_COLUMN
        self._steps = steps
        self._column_count = 0
        self._nodes: list[TypedNode] = []
        self._paths: list[str] = []
        self._open: list[set[int]] = []
        """The schemas around the current one, by identity."""

    def columns(self, place: Place) -> TypedColumns:
        """Map the whole schema."""
        root = self._add("")
        view = view_of(place, self._steps)
        names: tuple[bytes, ...] = ()
        indices: tuple[int, ...] = ()
        fields: tuple[TypedField, ...] = ()
        if view.types == {"object"} and view.properties:
            names, indices, fields = self._fields(view, "", 1, Names(RESERVED))
        if not fields:
            made = self._made(view, "", 2) or self._leaf("", "json")
            names, indices, fields = (), (made.index,), (_field(Names(RESERVED).unique("value"), "", made),)
        self._nodes[root] = TypedNode(TypedKind.RECORD, children=indices, symbols=names)
        return TypedColumns(
            schema_type=SchemaType.JSON, fields=fields, nodes=tuple(self._nodes), paths=tuple(self._paths)
        )

    def _add(self, path: str) -> int:
        if len(self._nodes) >= self._nodes_max:
            raise TooWide
        self._nodes.append(TypedNode(TypedKind.JSON))
        self._paths.append(path)
        return len(self._nodes) - 1

    def _leaf(self, path: str, name: str) -> Made:
        kind, type_, arrow = _LEAVES[name]
        index = self._add(path)
        self._nodes[index] = TypedNode(kind)
        self._column_count += 1
        if self._column_count > self._columns_max:
            raise TooWide
        return Made(index=index, type=type_, arrow=arrow, is_nullable=True, is_json=name == "json")

    def _any(self, schema: Any, place: Place, path: str, level: int) -> Made | None:
        """Add a schema inside of another one, at a level: that of the struct, list or map that it would be. None: it has no column."""
        return self._made(view_of(Place(schema, place.document), self._steps), path, level)

    def _made(self, view: View, path: str, level: int) -> Made | None:
        types = view.types
        if view.is_false or not types:
            return None
        if any(view.chain & around for around in self._open):
            return self._leaf(path, "json")
        if len(types) > 1 or (view.is_open and "type" not in view.keywords and not view.properties):
            return self._leaf(path, "json")
        (type_,) = types
        if type_ not in ("object", "array"):
            format_ = view.keywords.get("format")
            if type_ == "string" and isinstance(format_, str) and format_ in _FORMATS:
                return self._leaf(path, format_)
            return self._leaf(path, type_ if type_ in _SCALARS else "json")
        made = None
        if level <= self._levels_max:
            self._open.append(view.chain)
            made = self._list(view, path, level) if type_ == "array" else self._object(view, path, level)
            self._open.pop()
        return made or self._leaf(path, "json")

    def _object(self, view: View, path: str, level: int) -> Made | None:
        """Add an object; None: nothing is known about its fields."""
        if not view.properties:
            return self._map(view, path, level)
        index = self._add(path)
        names, indices, fields = self._fields(view, path, level, Names())
        if not fields:
            self._nodes.pop()
            self._paths.pop()
            return None
        self._nodes[index] = TypedNode(TypedKind.RECORD, children=indices, symbols=names)
        arrow = pa.struct([pa.field(item.name, item.arrow) for item in fields])
        return Made(index=index, type="struct", arrow=arrow, is_nullable=True, children=fields)

    def _fields(
        self, view: View, path: str, level: int, names: Names
    ) -> tuple[tuple[bytes, ...], tuple[int, ...], tuple[TypedField, ...]]:
        self._open.append(view.chain)
        symbols, indices, fields = [], [], []
        for name, place in view.properties.items():
            if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
                continue
            below = f"{path}.{name}" if path else name
            made = self._any(place.schema, place, below, level + 1)
            if made is not None:
                symbols.append(name.encode())
                indices.append(made.index)
                fields.append(_field(names.unique(name), below, made))
        self._open.pop()
        return tuple(symbols), tuple(indices), tuple(fields)

    def _map(self, view: View, path: str, level: int) -> Made | None:
        found = _values_of(view)
        if found is None:
            return None
        index = self._add(path)
        below, over = _join(path, "key"), _join(path, "value")
        key = self._leaf(below, "string")
        value = self._any(found.schema, found, over, level + 1) or self._leaf(over, "json")
        self._nodes[index] = TypedNode(TypedKind.MAP, children=(key.index, value.index))
        return Made(
            index=index,
            type="map",
            arrow=pa.map_(pa.string(), pa.field("value", value.arrow)),
            is_nullable=True,
            children=(_field("key", below, key), _field("value", over, value)),
            is_json=value.is_json,
        )

    def _list(self, view: View, path: str, level: int) -> Made | None:
        items = view.keywords.get("items")
        if not isinstance(items, dict) or "prefixItems" in view.keywords:
            return None
        index = self._add(path)
        below = _join(path, "element")
        made = self._any(items, view.places["items"], below, level + 1) or self._leaf(below, "json")
        self._nodes[index] = TypedNode(TypedKind.ARRAY, children=(made.index,))
        arrow = pa.list_(pa.field("element", made.arrow))
        children = (_field("element", below, made),)
        return Made(index=index, type="list", arrow=arrow, is_nullable=True, children=children, is_json=made.is_json)


def _values_of(view: View) -> Place | None:
    """Return the schema of the values of an object whose keys are data."""
    others, patterns = view.keywords.get("additionalProperties"), view.keywords.get("patternProperties")
    if isinstance(others, dict) and not patterns:
        return Place(others, view.places["additionalProperties"].document)
    if others is False and isinstance(patterns, dict) and len(patterns) == 1:
        return Place(next(iter(patterns.values())), view.places["patternProperties"].document)
    return None


def _field(name: str, path: str, made: Made) -> TypedField:
    return TypedField(
        name=name,
        path=path,
        type=made.type,
        arrow=made.arrow,
        is_nullable=True,
        children=made.children,
        is_json=made.is_json,
    )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
