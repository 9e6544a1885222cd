"""Values whose schema is named in a header of the record, as Confluent's serializers write it if they are told to.

    header __value_schema_id, of keys __key_schema_id      value of the record
    ┌───────┬────────────┬────────────────────────────┐    ┌──────────────────────┐
    │ 1     │ GUID, 16 B │ message indexes (Protobuf) │    │ the value alone      │
    │ 0     │ id, 4 B    │ message indexes (Protobuf) │    │                      │
    └───────┴────────────┴────────────────────────────┘    └──────────────────────┘

The last header of the name counts. Such values are decoded as if the id and the indexes stood before them.

Source: Confluent, "Wire format", schema id in headers (confluent-kafka-python, `SchemaId`).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.table.typed.framing import PREFIX_BYTES_MAX

VALUE_NAME: Final = "__value_schema_id"
KEY_NAME: Final = "__key_schema_id"
_BY_ID: Final = 0
_BY_GUID: Final = 1
_ID_BYTES: Final = 4
_GUID_BYTES: Final = 16


class UnknownGuids(Exception):
    """Headers have GUIDs, and the plan does not know those of the stream's schemas."""


class NamedInHeaders(NamedTuple):
    """Values with the prefix that their headers stand for; null: the header names no schema."""

    values: pa.BinaryArray
    is_named: pa.BooleanArray
    """Whether a header names the schema."""
    errors: pa.StringArray
    """Why a header names no schema."""


def framed(
    values: pa.BinaryArray, headers: pa.ListArray, name: str, guids: Mapping[str, int] | None
) -> NamedInHeaders | None:
    """Return the values, those with a header of this name after its prefix; None: no record has one. `guids`: ids by GUID, in hex.

    Raises:
        UnknownGuids: `guids` is None, and a header has one.
    """
    found = _last(headers, name)
    if found is None:
        return None
    rows, octets = found
    encoded = pc.dictionary_encode(octets)
    prefixes: list[bytes | None] = []
    errors: list[str | None] = []
    for octet in encoded.dictionary.to_pylist():
        prefix, error = _prefix(octet or b"", name, guids)
        prefixes.append(prefix)
        errors.append(error)
    places = pc.index_in(pa.array(range(len(values)), pa.int64()), value_set=rows)
    indices = encoded.indices.take(places)
    is_named = pc.and_(pc.is_valid(places), pc.is_valid(values))
    prefix_column = pa.array(prefixes, pa.binary()).take(indices)
    whole = pc.binary_join_element_wise(prefix_column, values, pa.scalar(b"", pa.binary()))
    return NamedInHeaders(
        pc.if_else(is_named, whole, values),
        is_named,
        pc.if_else(is_named, pa.array(errors, pa.string()).take(indices), None),
    )


def _last(headers: pa.ListArray, name: str) -> tuple[pa.Int64Array, pa.BinaryArray] | None:
    """Return the rows that have a header of this name, and its last value."""
    entries = headers.flatten()
    if not len(entries):
        return None
    is_name = pc.equal(entries.field("key"), name)
    if not pc.any(is_name).as_py():
        return None
    rows = pc.list_parent_indices(headers).cast(pa.int64()).filter(is_name)
    octets = entries.field("value").filter(is_name)
    after = pa.concat_arrays([rows.slice(1), pa.array([-1], pa.int64())])
    is_last = pc.not_equal(rows, after)
    return rows.filter(is_last), pc.fill_null(octets.filter(is_last), b"")


def _prefix(octets: bytes, name: str, guids: Mapping[str, int] | None) -> tuple[bytes | None, str | None]:
    """Return what a header stands for before a value, or why it stands for nothing."""
    if len(octets) > PREFIX_BYTES_MAX:
        return None, f"NO_SCHEMA: the header {name} is too long"
    if len(octets) > _ID_BYTES and octets[0] == _BY_ID:
        return octets, None
    if len(octets) <= _GUID_BYTES or octets[0] != _BY_GUID:
        return None, f"NO_SCHEMA: the header {name} names no schema"
    if guids is None:
        raise UnknownGuids
    guid = octets[1 : 1 + _GUID_BYTES].hex()
    id_ = guids.get(guid)
    if id_ is None:
        return None, f"UNKNOWN_SCHEMA: {guid}"
    return bytes([_BY_ID]) + id_.to_bytes(_ID_BYTES) + octets[1 + _GUID_BYTES :], None
