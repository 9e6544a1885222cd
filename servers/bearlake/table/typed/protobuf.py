"""Protobuf messages as typed columns.

| Protobuf | Iceberg |
|---|---|
| bool, float, double, string, bytes | boolean, float, double, string, binary |
| int32, sint32, sfixed32 | int |
| int64, sint64, sfixed64, uint32, fixed32 | long |
| uint64, fixed64 | decimal(20, 0) |
| enum | string: the symbol, or the digits of another number |
| message, group | struct; without fields: boolean, true |
| repeated, map | list, map |
| oneof | its fields, of which at most one is not null |
| wrapper (`google.protobuf.Int32Value`, …) | the value |
| `google.protobuf.Timestamp` | timestamptz |
| `google.protobuf.Any`, `Struct`, `Value`, `ListValue` | binary: the message's encoding |
| a message inside of itself, more than `levels_max` levels | binary: the message's encoding |

A field has nulls if it has presence; a field without presence has its default. Defaults that a schema declares (proto2), extensions and
names of oneofs make no columns. If a message has more than `columns_max` columns, its deepest levels become binary columns. Lists and maps
of the deepest messages stay columns, with binary elements, because a repeated field has no encoding of its own.

Source: Protocol Buffers, "Field Presence", "Well-Known Types".
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from bearlake.kernel import PROTO_KINDS, ProtoCoding, ProtoLabel, ProtoWire, TypedKind, TypedNode
from bearlake.table.typed.fitting import Made, TooWide, most_levels
from bearlake.table.typed.model import COLUMNS_MAX, LEVELS_MAX, SchemaError, SchemaType, TypedColumns, TypedField
from bearlake.table.typed.naming import RESERVED, Names

_NODES_PER_COLUMN: Final = 4
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_OPAQUE: Final = frozenset(f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue"))
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value": coding
    for name, coding in (
        ("Bool", ProtoCoding.BOOL),
        ("Int32", ProtoCoding.INT32),
        ("Int64", ProtoCoding.INT64),
        ("UInt32", ProtoCoding.UINT32),
        ("UInt64", ProtoCoding.UINT64),
        ("Float", ProtoCoding.FLOAT),
        ("Double", ProtoCoding.DOUBLE),
        ("String", ProtoCoding.STRING),
        ("Bytes", ProtoCoding.BYTES),
    )
}
_CODINGS: Final = {
    FieldDescriptor.TYPE_BOOL: ProtoCoding.BOOL,
    FieldDescriptor.TYPE_INT32: ProtoCoding.INT32,
    FieldDescriptor.TYPE_INT64: ProtoCoding.INT64,
    FieldDescriptor.TYPE_UINT32: ProtoCoding.UINT32,
    FieldDescriptor.TYPE_UINT64: ProtoCoding.UINT64,
    FieldDescriptor.TYPE_SINT32: ProtoCoding.SINT32,
    FieldDescriptor.TYPE_SINT64: ProtoCoding.SINT64,
    FieldDescriptor.TYPE_FIXED32: ProtoCoding.FIXED32,
    FieldDescriptor.TYPE_FIXED64: ProtoCoding.FIXED64,
    FieldDescriptor.TYPE_SFIXED32: ProtoCoding.SFIXED32,
    FieldDescriptor.TYPE_SFIXED64: ProtoCoding.SFIXED64,
    FieldDescriptor.TYPE_FLOAT: ProtoCoding.FLOAT,
    FieldDescriptor.TYPE_DOUBLE: ProtoCoding.DOUBLE,
    FieldDescriptor.TYPE_STRING: ProtoCoding.STRING,
    FieldDescriptor.TYPE_BYTES: ProtoCoding.BYTES,
    FieldDescriptor.TYPE_ENUM: ProtoCoding.ENUM,
    FieldDescriptor.TYPE_MESSAGE: ProtoCoding.MESSAGE,
    FieldDescriptor.TYPE_GROUP: ProtoCoding.GROUP,
}
_UNSIGNED: Final = frozenset({ProtoCoding.UINT32, ProtoCoding.FIXED32})
_COLUMNS: Final = {
    TypedKind.BOOLEAN: ("boolean", pa.bool_()),
    TypedKind.INT: ("int", pa.int32()),
    TypedKind.LONG: ("long", pa.int64()),
    TypedKind.FLOAT: ("float", pa.float32()),
    TypedKind.DOUBLE: ("double", pa.float64()),
    TypedKind.DECIMAL: ("decimal(20, 0)", pa.decimal128(20, 0)),
    TypedKind.STRING: ("string", pa.string()),
    TypedKind.BYTES: ("binary", pa.binary()),
    TypedKind.ENUM: ("string", pa.string()),
    TypedKind.OPAQUE: ("binary", pa.binary()),
    TypedKind.PRESENT: ("boolean", pa.bool_()),
}


def columns_of(
    files: Sequence[bytes],
    indexes: Sequence[int] = (0,),
    *,
    levels_max: int = LEVELS_MAX,
    columns_max: int = COLUMNS_MAX,
) -> TypedColumns:
    """Return the typed columns of a message.

    `files` are serialized `FileDescriptorProto`s of all files that the schema imports, each after those that it imports itself, then of the
    schema. `indexes` are the path from this last file to the message (Confluent's message indexes).

    Raises:
        SchemaError: the files are malformed, there is no such message, or it has too many columns.
    """
    message = _message(files, indexes)
    return most_levels(lambda levels: _Mapper(levels, columns_max).columns(message), levels_max, columns_max)


def opened(files: Sequence[bytes]) -> tuple[str, list[Descriptor]]:
    """Return the name of the last file, and its messages. Raises `SchemaError`: the files are malformed."""
    pool = DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file)
        own = FileDescriptorProto.FromString(files[-1])
        found = pool.FindFileByName(own.name)
    except (DecodeError, TypeError, KeyError, IndexError) as error:
        raise SchemaError("the schema's descriptors are malformed") from error
    return own.name, [found.message_types_by_name[message.name] for message in own.message_type]


def _message(files: Sequence[bytes], indexes: Sequence[int]) -> Descriptor:
    """Return the message at a path. The types of maps' entries, which the compiler makes, have no index."""
    _, inner = opened(files)
    message: Descriptor | None = None
    for index in indexes:
        if not 0 <= index < len(inner):
            message = None
            break
        message = inner[index]
        inner = [below for below in message.nested_types if not below.GetOptions().map_entry]
    if message is None:
        raise SchemaError(f"the schema has no message at {list(indexes)}")
    return message


class _Mapper:
    """Walks through a message, adds its nodes parents first, and makes its fields."""

    def __init__(self, levels_max: int, columns_max: int) -> None:
        self._levels_max = levels_max
        self._columns_max = columns_max
        self._column_count = 0
        self._nodes: list[TypedNode] = []
        self._wires: list[ProtoWire] = []
        self._paths: list[str] = []
        self._open: list[str] = []
        """Full names of the messages around the current field."""

    def columns(self, message: Descriptor) -> TypedColumns:
        """Map the whole message."""
        root = self._add("", ProtoWire())
        if message.fields:
            indices, fields = self._fields(message, "", 1, Names(RESERVED))
        else:
            made = self._leaf("", TypedNode(TypedKind.PRESENT), ProtoWire())
            indices, fields = (made.index,), (_field("value", "", made, None),)
        self._nodes[root] = TypedNode(TypedKind.RECORD, children=indices)
        return TypedColumns(
            schema_type=SchemaType.PROTOBUF,
            fields=fields,
            nodes=tuple(self._nodes),
            paths=tuple(self._paths),
            wires=tuple(self._wires),
        )

    def _add(self, path: str, wire: ProtoWire) -> int:
        if len(self._nodes) >= self._columns_max * _NODES_PER_COLUMN:
            raise TooWide
        self._nodes.append(TypedNode(TypedKind.NULL))
        self._wires.append(wire)
        self._paths.append(path)
        return len(self._nodes) - 1

    def _leaf(self, path: str, node: TypedNode, wire: ProtoWire) -> Made:
        index = self._add(path, wire)
        self._nodes[index] = node
        self._column_count += 1
        if self._column_count > self._columns_max:
            raise TooWide
        type_, arrow = _COLUMNS[TypedKind(node.kind)]
        may_not_fit = wire.coding in (ProtoCoding.STRING, ProtoCoding.TIMESTAMP)
        if wire.coding == ProtoCoding.TIMESTAMP:
            type_, arrow = "timestamptz", pa.timestamp("us", tz="UTC")
        is_nullable = may_not_fit or wire.label == ProtoLabel.EXPLICIT
        return Made(index=index, type=type_, arrow=arrow, is_nullable=is_nullable)

    def _fields(
        self, message: Descriptor, path: str, level: int, names: Names
    ) -> tuple[tuple[int, ...], tuple[TypedField, ...]]:
        """Add the fields by number, which is the order in which encoders write them."""
        self._open.append(message.full_name)
        indices, fields = [], []
        oneofs: dict[str, int] = {}  # numbered by their first fields: fewer than fields
        for item in sorted(message.fields, key=lambda item: item.number):
            below = f"{path}.{item.name}" if path else item.name
            oneof = -1
            if item.containing_oneof is not None:
                oneof = oneofs.setdefault(item.containing_oneof.full_name, len(oneofs))
            made = self._any(item, below, level + 1, oneof)
            indices.append(made.index)
            fields.append(_field(names.unique(item.name), below, made, item.number))
        self._open.pop()
        return tuple(indices), tuple(fields)

    def _any(self, item: FieldDescriptor, path: str, level: int, oneof: int) -> Made:
        """Add a field at a level: the level of the struct, list or map that it would be."""
        if item.is_repeated:
            return self._list(item, path, level)
        label = ProtoLabel.EXPLICIT if item.has_presence else ProtoLabel.IMPLICIT
        return self._one(item, path, level, ProtoWire(_CODINGS[item.type], item.number, label, oneof))

    def _list(self, item: FieldDescriptor, path: str, level: int) -> Made:
        coding = _CODINGS[item.type]
        entry = item.message_type
        if coding == ProtoCoding.MESSAGE and entry is not None and entry.GetOptions().map_entry:
            return self._map(item, entry, path, level)
        label = ProtoLabel.PACKED if item.is_packed else ProtoLabel.REPEATED
        index = self._add(path, ProtoWire(number=item.number, label=label))
        below = f"{path}.element"
        made = self._one(item, below, level + 1, ProtoWire(coding))
        self._nodes[index] = TypedNode(TypedKind.ARRAY, children=(made.index,))
        arrow = pa.list_(pa.field("element", made.arrow))
        children = (_field("element", below, made, None),)
        return Made(index=index, type="list", arrow=arrow, is_nullable=False, children=children)

    def _map(self, item: FieldDescriptor, entry: Descriptor, path: str, level: int) -> Made:
        index = self._add(path, ProtoWire(number=item.number, label=ProtoLabel.REPEATED))
        key, value = (
            self._one(field, f"{path}.{field.name}", level + 1, ProtoWire(_CODINGS[field.type], field.number))
            for field in (entry.fields_by_number[1], entry.fields_by_number[2])
        )
        self._nodes[index] = TypedNode(TypedKind.MAP, children=(key.index, value.index))
        return Made(
            index=index,
            type="map",
            arrow=pa.map_(key.arrow, pa.field("value", value.arrow)),
            is_nullable=True,
            children=(_field("key", f"{path}.key", key, None), _field("value", f"{path}.value", value, None)),
        )

    def _one(self, item: FieldDescriptor, path: str, level: int, wire: ProtoWire) -> Made:
        """Add a value, written as `wire` says."""
        if item.enum_type is not None:
            return self._enum(item.enum_type, path, wire)
        message = item.message_type
        if message is None:
            return self._leaf(path, TypedNode(*_kind(ProtoCoding(wire.coding))), wire)
        name = message.full_name
        if wire.coding == ProtoCoding.MESSAGE and name == _TIMESTAMP:
            return self._leaf(path, TypedNode(TypedKind.LONG), wire._replace(coding=ProtoCoding.TIMESTAMP))
        if wire.coding == ProtoCoding.MESSAGE and name in _WRAPPERS:
            coding = _WRAPPERS[name]
            return self._leaf(path, TypedNode(*_kind(coding)), wire._replace(coding=coding, is_wrapped=True))
        if not message.fields:
            return self._leaf(path, TypedNode(TypedKind.PRESENT), wire)
        if level > self._levels_max or name in self._open or name in _OPAQUE:
            return self._leaf(path, TypedNode(TypedKind.OPAQUE), wire)
        index = self._add(path, wire)
        indices, fields = self._fields(message, path, level, Names())
        self._nodes[index] = TypedNode(TypedKind.RECORD, children=indices)
        arrow = pa.struct([pa.field(field.name, field.arrow) for field in fields])
        is_nullable = wire.label == ProtoLabel.EXPLICIT
        return Made(index=index, type="struct", arrow=arrow, is_nullable=is_nullable, children=fields)

    def _enum(self, enum: EnumDescriptor, path: str, wire: ProtoWire) -> Made:
        symbols: dict[int, bytes] = {}
        for value in enum.values:
            symbols.setdefault(value.number, value.name.encode())  # the first of several names (`allow_alias`)
        node = TypedNode(TypedKind.ENUM, symbols=tuple(symbols.values()))
        return self._leaf(path, node, wire._replace(numbers=tuple(symbols), is_closed=enum.is_closed))


def _kind(coding: ProtoCoding) -> tuple[int, int, int, int]:
    """Return the first fields of the node of a scalar."""
    kind = PROTO_KINDS[coding]
    return kind, -1, 0, 20 if kind == TypedKind.DECIMAL else 0


def _field(name: str, path: str, made: Made, number: int | None) -> TypedField:
    return TypedField(
        name=name,
        path=path,
        type=made.type,
        arrow=made.arrow,
        is_nullable=made.is_nullable,
        children=made.children,
        number=number,
    )
