"""Avro schemas as typed columns.

| Avro | Iceberg |
|---|---|
| boolean, int, long, float, double, bytes, string | boolean, int, long, float, double, binary, string |
| enum | string |
| fixed | fixed; of more than 1,024 bytes: binary; of size 0: boolean |
| decimal of at most 38 digits, else | decimal; binary |
| uuid | uuid |
| date, time-*, timestamp-millis and -micros, local-* | date, time, timestamptz, timestamp |
| timestamp-nanos and local-timestamp-nanos | long |
| duration | struct of months, days and milliseconds |
| null and one other type | the other type |
| other unions | struct with one field per branch, except null |
| record | struct; without columns: boolean, true |
| array, map | list, map |
| a record inside of itself, more than `levels_max` levels | binary: Avro's encoding |
| a field of type null | none; inside of arrays and maps, and alone: boolean, always null |

A logical type that does not fit its type is ignored, as the specification says. If a schema has more than `columns_max` columns, its
deepest levels become binary columns, so that the others fit.
"""

from collections.abc import Sequence

import pyarrow as pa

from bearlake.kernel import CHECKED_KINDS, DECIMAL_DIGITS_MAX, NODES_MAX, TypedKind, TypedNode
from bearlake.table.typed import avro_types
from bearlake.table.typed.avro_leaves import LEAVES, TIMES
from bearlake.table.typed.avro_types import PRIMITIVES, AvroType, short_name
from bearlake.table.typed.fitting import Made, TooWide, most_levels
from bearlake.table.typed.model import COLUMNS_MAX, LEVELS_MAX, SchemaError, SchemaType, TypedColumns, TypedField
from bearlake.table.typed.naming import RESERVED, Names

_DURATION = ("months", "days", "milliseconds")
_FIXED_COLUMN_BYTES_MAX = 1024
"""Larger ones are binary columns: a null in a column of a fixed width takes the whole width."""

_NODES_PER_COLUMN = 4
"""Limit of nodes in the tree per column: structs, lists and nulls of a union have no columns of their own."""


def columns_of(
    text: str,
    references: Sequence[str] = (),
    *,
    levels_max: int = LEVELS_MAX,
    columns_max: int = COLUMNS_MAX,
) -> TypedColumns:
    """Return the typed columns of a schema; `references` are the schemas whose names it uses. Raises `SchemaError`."""
    schema = avro_types.parse(text, references)
    return most_levels(lambda levels: _Mapper(levels, columns_max).columns(schema), levels_max, columns_max)


def value_nodes(text: str, references: Sequence[str] = ()) -> tuple[TypedNode, ...]:
    """Return a schema with one OPAQUE column for whole values: `kernel.decode_avro` checks values, and makes no columns of their fields.

    Empty if every sequence of bytes is a value: for the schema `bytes`, Confluent's serializers write the bytes alone.

    Raises:
        SchemaError: the schema is malformed, or too large.
    """
    schema = avro_types.parse(text, references)
    if schema.kind == "bytes":
        return ()
    try:
        return _Mapper(LEVELS_MAX, COLUMNS_MAX).whole(schema)
    except TooWide as error:
        raise SchemaError(f"the schema has more than {NODES_MAX} types") from error
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error


class _Mapper:
    """Walks through a schema, adds its nodes parents first, and makes its fields."""

    def __init__(self, levels_max: int, columns_max: int) -> None:
        self._levels_max = levels_max
        self._columns_max = columns_max
        self._nodes_max = columns_max * _NODES_PER_COLUMN
        self._column_count = 0
        self._nodes: list[TypedNode] = []
        self._paths: list[str] = []
        self._open: list[AvroType] = []
        """Records around the current type."""
        self._below: dict[int | str, int] = {}
        """Nodes outside of the tree, by the identity of their type or the name of a primitive type."""
        self._opaque: list[tuple[int, AvroType]] = []
        """OPAQUE nodes, whose types are added when the tree is complete."""
        self._has_bytes: dict[int, bool] = {}
        """Whether a type's values have bytes, by the type's identity."""

    def columns(self, schema: AvroType) -> TypedColumns:
        """Map the whole schema."""
        root = self._add("")
        if schema.kind == "record" and self._has_columns(schema):
            indices, fields = self._fields(schema, "", 1, Names(RESERVED))
        else:
            made = self._any(schema, "", 2)
            indices, fields = (made.index,), (_field(Names(RESERVED).unique("value"), "", made),)
        self._nodes[root] = TypedNode(TypedKind.RECORD, children=indices)
        self._add_outside()
        return TypedColumns(
            schema_type=SchemaType.AVRO, fields=fields, nodes=tuple(self._nodes), paths=tuple(self._paths)
        )

    def whole(self, schema: AvroType) -> tuple[TypedNode, ...]:
        """Map the whole schema to one column of its encoding."""
        root = self._add("")
        self._nodes[root] = TypedNode(TypedKind.RECORD, children=(self._binary(schema, "", -1).index,))
        self._add_outside()
        return tuple(self._nodes)

    def _add_outside(self) -> None:
        """Add the types below OPAQUE nodes, when the tree is complete."""
        self._nodes_max = NODES_MAX
        for index, avro in self._opaque:
            self._nodes[index] = self._nodes[index]._replace(children=(self._outside(avro),))

    def _add(self, path: str) -> int:
        if len(self._nodes) >= self._nodes_max:
            raise TooWide
        self._nodes.append(TypedNode(TypedKind.NULL))
        self._paths.append(path)
        return len(self._nodes) - 1

    def _leaf(self, path: str, node: TypedNode, type_: str, arrow: pa.DataType) -> Made:
        index = self._add(path)
        self._nodes[index] = node
        self._column_count += 1
        if self._column_count > self._columns_max:
            raise TooWide
        return Made(
            index=index,
            type=type_,
            arrow=arrow,
            is_nullable=node.null_branch >= 0 or node.kind in CHECKED_KINDS or node.kind == TypedKind.NULL,
        )

    def _any(self, avro: AvroType, path: str, level: int) -> Made:
        """Add a type at a level: the level of the struct, list or map that it would be."""
        if avro.kind != "union":
            return self._one(avro, path, level, -1)
        kinds = [branch.kind for branch in avro.below]
        if kinds == ["null"]:
            return self._leaf(path, TypedNode(TypedKind.NULL, 0), "boolean", pa.bool_())
        if len(kinds) == 2 and "null" in kinds:
            null = kinds.index("null")
            return self._one(avro.below[1 - null], path, level, null)
        return self._union(avro, path, level)

    def _one(self, avro: AvroType, path: str, level: int, null: int) -> Made:
        if avro.kind == "null":
            return self._leaf(path, TypedNode(TypedKind.NULL, null), "boolean", pa.bool_())
        if avro.kind in ("array", "map"):
            return self._list(avro, path, level, null)
        if avro.logical.get("logicalType") == "duration" and avro.kind == "fixed" and avro.size == 12:
            return self._duration(avro, path, level, null)
        if avro.kind != "record":
            return self._scalar(avro, path, null)
        if not self._has_columns(avro):
            return self._leaf(path, TypedNode(TypedKind.PRESENT, null), "boolean", pa.bool_())
        if level > self._levels_max or avro in self._open:
            return self._binary(avro, path, null)
        index = self._add(path)
        indices, fields = self._fields(avro, path, level, Names())
        self._nodes[index] = TypedNode(TypedKind.RECORD, null, children=indices)
        return _struct(index, fields, is_nullable=null >= 0)

    def _has_columns(self, avro: AvroType) -> bool:
        return any(field.type.kind != "null" for field in avro.fields)

    def _fields(
        self, avro: AvroType, path: str, level: int, names: Names
    ) -> tuple[tuple[int, ...], tuple[TypedField, ...]]:
        self._open.append(avro)
        indices, fields = [], []
        for item in avro.fields:
            if item.type.kind == "null":
                continue
            below = _join(path, item.name)
            made = self._any(item.type, below, level + 1)
            indices.append(made.index)
            fields.append(_field(names.unique(item.name), below, made, item.aliases))
        self._open.pop()
        return tuple(indices), tuple(fields)

    def _union(self, avro: AvroType, path: str, level: int) -> Made:
        if level > self._levels_max:
            return self._binary(avro, path, -1)
        index = self._add(path)
        names = Names()
        indices, fields = [], []
        for branch in avro.below:
            name = names.unique(short_name(branch))
            below = _join(path, name)
            if branch.kind == "null":
                indices.append(self._add(below))
                continue
            made = self._one(branch, below, level + 1, -1)
            indices.append(made.index)
            fields.append(_field(name, below, made, is_nullable=True))
        self._nodes[index] = TypedNode(TypedKind.UNION, children=tuple(indices))
        return _struct(index, tuple(fields), is_nullable=len(fields) < len(indices))

    def _list(self, avro: AvroType, path: str, level: int, null: int) -> Made:
        if level > self._levels_max:
            return self._binary(avro, path, null)
        index = self._add(path)
        if avro.kind == "array":
            below = _join(path, "element")
            made = self._any(avro.below[0], below, level + 1)
            self._nodes[index] = TypedNode(TypedKind.ARRAY, null, children=(made.index,))
            arrow = pa.list_(pa.field("element", made.arrow))
            children = (_field("element", below, made),)
            return Made(index=index, type="list", arrow=arrow, is_nullable=null >= 0, children=children)
        below = _join(path, "key")
        key = self._leaf(below, TypedNode(TypedKind.STRING), "string", pa.string())
        over = _join(path, "value")
        value = self._any(avro.below[0], over, level + 1)
        self._nodes[index] = TypedNode(TypedKind.MAP, null, children=(key.index, value.index))
        return Made(
            index=index,
            type="map",
            arrow=pa.map_(pa.string(), pa.field("value", value.arrow)),
            is_nullable=True,
            children=(_field("key", below, key), _field("value", over, value)),
        )

    def _duration(self, avro: AvroType, path: str, level: int, null: int) -> Made:
        if level > self._levels_max:
            return self._binary(avro, path, null)
        index = self._add(path)
        parts = [
            (_join(path, name), self._leaf(_join(path, name), TypedNode(TypedKind.UINT32), "long", pa.int64()))
            for name in _DURATION
        ]
        fields = tuple(_field(name, below, made) for name, (below, made) in zip(_DURATION, parts, strict=True))
        self._nodes[index] = TypedNode(TypedKind.RECORD, null, children=tuple(made.index for _, made in parts))
        return _struct(index, fields, is_nullable=null >= 0)

    def _scalar(self, avro: AvroType, path: str, null: int) -> Made:
        kind = avro.kind
        if kind == "enum":
            symbols = tuple(symbol.encode() for symbol in avro.symbols)
            return self._leaf(path, TypedNode(TypedKind.ENUM, null, symbols=symbols), "string", pa.string())
        decimal = _decimal(avro)
        if decimal is not None:
            precision, scale = decimal
            if precision > DECIMAL_DIGITS_MAX:
                type_, arrow = "binary", pa.binary()
                if kind == "bytes":
                    return self._leaf(path, TypedNode(TypedKind.BYTES, null), type_, arrow)
            else:
                kind_ = TypedKind.DECIMAL if kind == "bytes" else TypedKind.DECIMAL_FIXED
                node = TypedNode(kind_, null, avro.size, precision)
                return self._leaf(path, node, f"decimal({precision}, {scale})", pa.decimal128(precision, scale))
        if kind == "fixed":
            return self._fixed(avro, path, null)
        logical = avro.logical.get("logicalType")
        found = TIMES.get((kind, logical), LEAVES[kind]) if isinstance(logical, str) else LEAVES[kind]
        return self._leaf(path, TypedNode(found[0], null), found[1], found[2])

    def _fixed(self, avro: AvroType, path: str, null: int) -> Made:
        if avro.size == 0:
            return self._leaf(path, TypedNode(TypedKind.PRESENT, null), "boolean", pa.bool_())
        if avro.size > _FIXED_COLUMN_BYTES_MAX:
            return self._binary(avro, path, null)
        is_uuid = avro.size == 16 and avro.logical.get("logicalType") == "uuid"
        type_ = "uuid" if is_uuid else f"fixed[{avro.size}]"
        return self._leaf(path, TypedNode(TypedKind.FIXED, null, avro.size), type_, pa.binary(avro.size))

    def _binary(self, avro: AvroType, path: str, null: int) -> Made:
        made = self._leaf(path, TypedNode(TypedKind.OPAQUE, null), "binary", pa.binary())
        self._opaque.append((made.index, avro))
        return made

    def _takes_bytes(self, avro: AvroType) -> bool:
        """Whether a value of the type has any bytes. A record inside of itself, without a union in between, has no values."""
        key = id(avro)
        if key not in self._has_bytes:
            self._has_bytes[key] = True
            self._has_bytes[key] = (
                any(self._takes_bytes(item.type) for item in avro.fields)
                if avro.kind == "record"
                else avro.kind != "null" and not (avro.kind == "fixed" and avro.size == 0)
            )
        return self._has_bytes[key]

    def _outside(self, avro: AvroType) -> int:
        """Add a type outside of the tree, once.

        Fields without bytes are left out: records of such records, two at each level, would take 2^64 steps for a value of no bytes.
        """
        key = avro.kind if avro.kind in PRIMITIVES else id(avro)
        if key in self._below:
            return self._below[key]
        index = self._add("")
        self._below[key] = index
        if avro.kind == "null":
            return index
        if avro.kind == "record":
            fields = [item.type for item in avro.fields if self._takes_bytes(item.type)]
            node = TypedNode(TypedKind.RECORD, children=tuple(map(self._outside, fields)))
            node = node if node.children else TypedNode(TypedKind.PRESENT)
        elif avro.kind == "enum":
            node = TypedNode(TypedKind.ENUM, symbols=tuple(symbol.encode() for symbol in avro.symbols))
        elif avro.kind == "fixed":
            node = TypedNode(TypedKind.FIXED, size=avro.size) if avro.size else TypedNode(TypedKind.PRESENT)
        elif avro.kind in ("union", "array"):
            kind = TypedKind.UNION if avro.kind == "union" else TypedKind.ARRAY
            node = TypedNode(kind, children=tuple(self._outside(branch) for branch in avro.below))
        elif avro.kind == "map":
            node = TypedNode(TypedKind.MAP, children=(self._outside(_STRING), self._outside(avro.below[0])))
        else:
            node = TypedNode(LEAVES[avro.kind][0])
        self._nodes[index] = node
        return index


_STRING = AvroType("string", "string")


def _field(name: str, path: str, made: Made, aliases: tuple[str, ...] = (), *, is_nullable: bool = False) -> TypedField:
    return TypedField(
        name=name,
        path=path,
        type=made.type,
        arrow=made.arrow,
        is_nullable=made.is_nullable or is_nullable,
        children=made.children,
        aliases=aliases,
    )


def _struct(index: int, fields: tuple[TypedField, ...], *, is_nullable: bool) -> Made:
    arrow = pa.struct([pa.field(item.name, item.arrow) for item in fields])
    return Made(index=index, type="struct", arrow=arrow, is_nullable=is_nullable, children=fields)


def _decimal(avro: AvroType) -> tuple[int, int] | None:
    """Return precision and scale of a valid decimal, else None."""
    if avro.logical.get("logicalType") != "decimal" or avro.kind not in ("bytes", "fixed"):
        return None
    precision, scale = avro.logical.get("precision"), avro.logical.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return None
    if avro.kind == "fixed" and 10 ** min(precision, DECIMAL_DIGITS_MAX + 1) > 2 ** (8 * min(avro.size, 17)) // 2:
        return None  # for more digits the column is the same, whether the decimal is valid or not
    return precision, scale


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
