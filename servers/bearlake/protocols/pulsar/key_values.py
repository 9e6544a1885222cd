"""KEY_VALUE schemas as Avro: a record of the key's schema and the value's, so that the registry compares both as it compares any.

    content    [size u32][key schema][size u32][value schema], big-endian
    properties key.schema.type, value.schema.type: names of their types

Names that the value defines get a suffix: key and value may define the same ones, and an Avro schema may not, twice.

Source: PIP-43; Pulsar, `KeyValueSchemaInfo` and `KeyValueSchemaCompatibilityCheck` (each side is compared by its own type).
"""

import json
from collections.abc import Mapping
from typing import Any

from bearlake.protocols.pulsar.errors import Refused

PARTS = ("key", "value")
_SIZE_BYTES = 4
_SUFFIX = "__value"
_NAMED = ("record", "enum", "fixed", "error")
_PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", *_NAMED)
_AVRO_TEXT = ("AVRO", "JSON", "PROTOBUF")


def split(content: bytes) -> tuple[bytes, bytes]:
    """The key's schema and the value's. Raises `Refused` (IncompatibleSchema)."""
    parts, rest = [], content
    for part in PARTS:
        size = int.from_bytes(rest[:_SIZE_BYTES], "big", signed=True)
        if len(rest) < _SIZE_BYTES + max(0, size):
            raise Refused("IncompatibleSchema", f"a KEY_VALUE schema whose {part} is cut off")
        parts.append(rest[_SIZE_BYTES : _SIZE_BYTES + max(0, size)])
        rest = rest[_SIZE_BYTES + max(0, size) :]
    return parts[0], parts[1]


def joined(key: bytes, value: bytes) -> bytes:
    """The reverse of `split`."""
    return b"".join(len(part).to_bytes(_SIZE_BYTES, "big") + part for part in (key, value))


def types_of(properties: Mapping[str, str]) -> tuple[str, str]:
    """Names of the types of key and value; empty where nobody said."""
    return properties.get("key.schema.type", ""), properties.get("value.schema.type", "")


def record_of(content: bytes, properties: Mapping[str, str], primitives: Mapping[str, str]) -> dict[str, Any] | None:
    """The Avro record; None if a type is not said, or is none that Avro has a schema for. Raises `Refused`.

    `primitives` are the Avro types of primitive ones, by their names in Pulsar.
    """
    types = types_of(properties)
    if not all(name in _AVRO_TEXT or name in primitives for name in types):
        return None
    key, value = (
        _parsed(text) if name in _AVRO_TEXT else primitives[name]
        for name, text in zip(types, split(content), strict=True)
    )
    fields = [{"name": "key", "type": key}, {"name": "value", "type": _renamed(value)}]
    return {"type": "record", "name": "PulsarKeyValue", "fields": fields}


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("IncompatibleSchema", "a KEY_VALUE schema with a part that is no JSON") from error


def _renamed(schema: Any) -> Any:
    """The schema with a suffix to every name of its own. (Any: JSON that may be malformed; the registry says so.)"""
    if isinstance(schema, str):
        return schema if schema in _PLAIN else schema + _SUFFIX
    if isinstance(schema, list):
        return [_renamed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    if isinstance(made.get("name"), str) and made.get("type") in _NAMED:
        made["name"] += _SUFFIX
    for inner in ("type", "items", "values"):
        if inner in made:
            made[inner] = _renamed(made[inner])
    fields = made.get("fields")
    if isinstance(fields, list):
        made["fields"] = [
            {**one, "type": _renamed(one["type"])} if isinstance(one, dict) and "type" in one else one for one in fields
        ]
    return made
