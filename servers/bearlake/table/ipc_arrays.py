"""Arrays on the buffers of IPC messages, which lie within the message (`ipc_message.py`). Their values are not checked yet.

Importing this module needs pyarrow.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from bearlake.errors import Invalid
from bearlake.table.ipc_message import OFFSET_BYTES, Column, Kind, Values

_LISTS: Final = {Kind.LIST: pa.list_, Kind.LARGE_LIST: pa.large_list}


def array_of(column: Column, found: Values, type_of: Callable[[Column], pa.DataType]) -> pa.Array:
    """Return a column as an array on its buffers. `type_of` returns the type of a column that is not nested, or raises `Invalid`.

    Raises:
        Invalid: a buffer is too short for the values, or the column is of a kind that no column here has.
    """
    kind = column.kind
    if kind is Kind.NULL:
        return pa.nulls(found.length)
    if kind in (Kind.LIST, Kind.LARGE_LIST, Kind.STRUCT, Kind.MAP):
        return _nested(column, found, type_of)
    type_ = type_of(column)
    if kind in OFFSET_BYTES:
        return _from_buffers(type_, found.length, [found.validity, _offsets(kind, found), found.content])
    assert found.content is not None
    if len(found.content) * 8 < found.length * type_.bit_width:
        raise Invalid(f"column {column.name}: its values are too short")
    return _from_buffers(type_, found.length, [found.validity, found.content])


def _nested(column: Column, found: Values, type_of: Callable[[Column], pa.DataType]) -> pa.Array:
    kind = column.kind
    children = [array_of(child, values, type_of) for child, values in zip(column.children, found.children, strict=True)]
    fields = [pa.field(child.name, array.type) for child, array in zip(column.children, children, strict=True)]
    if kind is Kind.STRUCT:
        return _from_buffers(pa.struct(fields), found.length, [found.validity], children)
    if len(fields) != 1:
        raise Invalid(f"column {column.name}: a list has one kind of items, not {len(fields)}")
    if kind is Kind.MAP:
        entries = fields[0].type
        if not pa.types.is_struct(entries) or entries.num_fields != 2:
            raise Invalid(f"column {column.name}: a map has keys and values")
        if children[0].null_count or children[0].field(0).null_count:
            raise Invalid(f"column {column.name}: an entry or a key of a map is null")
        type_: pa.DataType = pa.map_(entries.field(0).type, entries.field(1).type)
    else:
        assert kind is not None
        type_ = _LISTS[kind](fields[0])
    return _from_buffers(type_, found.length, [found.validity, _offsets(kind, found)], children)


def _offsets(kind: Kind | None, found: Values) -> memoryview:
    """Return the offsets; those of no values may take no bytes."""
    offsets = found.offsets
    assert offsets is not None
    assert kind is not None
    return offsets if found.length else memoryview(bytes(OFFSET_BYTES[kind]))


def _from_buffers(
    type_: pa.DataType, length: int, buffers: Sequence[memoryview | None], children: Sequence[pa.Array] = ()
) -> pa.Array:
    parts = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(type_, length, parts, children=list(children) or None)
