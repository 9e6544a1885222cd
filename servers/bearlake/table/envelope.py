"""Events of a change data capture (Debezium) as the rows that they describe. Pure functions for a thread.

| event | row |
|---|---|
| `op` is c (create), u (update) or r (read by a snapshot), and there is an `after` | `after` |
| `op` is d (delete), or anything else | none: the key has no row |
| a tombstone | none |
| no event: a value that cannot be decoded, or is no JSON object with `op` | the record as it is |

With typed columns, the fields of `after` are the row's columns, and `_value` is null. Else the event is JSON, with or without Kafka
Connect's schema around it (`payload`), and `_value` is the text of `after`, byte for byte as in the event.

Source: Debezium 3 documentation, "Change event values", "Tombstone events"; Kafka Connect, `JsonConverter`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.table.current_columns import CurrentColumns
from bearlake.table.schema import FIELD_IDS, METADATA_KEY, SCHEMA_ID, VALUE

UPSERTS: Final = ("c", "u", "r")
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)
"""Finds where values end. Numbers stay texts: Python refuses integers of more than 4,300 digits."""
_BLANKS: Final = " \t\r\n"

ArraysById = Mapping[int, tuple[pa.Field, pa.Array]]


class NoEvent(Exception):
    """The value is no event."""


def unwrapped(
    found: ArraysById,
    columns: CurrentColumns,
    schema: pa.Schema,
    fit: Callable[[ArraysById, pa.Schema, int], list[pa.Array]],
    is_tombstone_name: str,
) -> pa.Table:
    """Return the rows of events with the columns of `schema`, and whether they delete their keys, in the column `is_tombstone_name`.

    `found`: the columns of the stream's table by field id. `fit` makes of them the columns of a schema.
    """
    values = found[FIELD_IDS[VALUE]][1]
    count = len(values)
    operations = _array(found, columns.operation_id, pa.nulls(count, pa.string()))
    after = _array(found, columns.after_id, pa.nulls(count))
    inner = {} if pa.types.is_null(after.type) else _fields_of(after)
    own = {id_: pair for id_, pair in found.items() if id_ not in (columns.after_id, columns.operation_id)}
    arrays = fit({**own, **inner}, schema, count)
    is_event = pc.is_valid(operations)
    is_row = pc.and_(pc.is_in(operations, value_set=pa.array(UPSERTS, operations.type)), pc.is_valid(after))
    has_id = pa.repeat(pa.scalar(False), count)
    if SCHEMA_ID in schema.names:
        has_id = pc.is_valid(arrays[schema.get_field_index(SCHEMA_ID)])
    is_absent = pc.and_(pc.is_null(values), pc.invert(has_id))
    texts, is_deletion = _from_json(values, pc.and_(pc.is_valid(values), pc.invert(is_event)))
    arrays[schema.get_field_index(VALUE)] = pc.if_else(is_event, None, texts)
    is_tombstone = pc.if_else(is_event, pc.invert(is_row), pc.or_(is_absent, is_deletion))
    return pa.Table.from_arrays([*arrays, is_tombstone], schema=schema.append(pa.field(is_tombstone_name, pa.bool_())))


def _array(found: ArraysById, id_: int, absent: pa.Array) -> pa.Array:
    return found[id_][1] if id_ in found else absent


def _fields_of(after: pa.StructArray) -> dict[int, tuple[pa.Field, pa.Array]]:
    """Return the fields of the rows by field id; null where there is no row."""
    parts = after.flatten()
    return {
        int(field.metadata[METADATA_KEY]): (field, part if part.offset == 0 else pa.concat_arrays([part]))
        for field, part in zip(after.type, parts, strict=True)
    }


def _from_json(values: pa.Array, mask: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the values, with those under the mask that are events replaced by their rows, and which of them delete their key."""
    if not pc.any(mask).as_py():
        return values, pa.repeat(pa.scalar(False), len(values))
    texts = values.to_pylist()
    flags = [False] * len(texts)
    for at, is_candidate in enumerate(mask.to_pylist()):
        if is_candidate:
            try:
                row = row_of(texts[at])
            except NoEvent:
                continue
            texts[at], flags[at] = row, row is None
    return pa.array(texts, pa.binary()), pa.array(flags, pa.bool_())


def row_of(value: bytes) -> bytes | None:
    """Return the text of the row after the change, as it is in an event; None: the key has no row. Raises `NoEvent`."""
    try:
        text = value.decode()
        parts = dict(_members(text))
        if "payload" in parts and "op" not in parts:
            text = parts["payload"]
            parts = dict(_members(text))
        operation = json.loads(parts["op"])
    except (ValueError, LookupError, RecursionError) as error:
        raise NoEvent from error
    if not isinstance(operation, str):
        raise NoEvent
    after = parts.get("after", "null")
    return after.encode() if operation in UPSERTS and after != "null" else None


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, text of the value) of a JSON object. Raises `ValueError`: it is none."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("no object")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return
    while True:
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise ValueError("no name")
        start = _skip(text, at + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield name, text[start:end]
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return
        if text[at : at + 1] != ",":
            raise ValueError("no object")
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at
