"""KEY_VALUE schemas as Avro: a record of the key's and the value's schema, so that the registry can compare both.

    content    [size u32][key schema][size u32][value schema], big-endian
    properties key.schema.type, value.schema.type: the names of their types

Names that the value defines get a suffix: key and value may define the same names, but an Avro schema may define each name only once.

Source: PIP-43; Pulsar, `KeyValueSchemaInfo` and `KeyValueSchemaCompatibilityCheck` (each part is compared by its own type).
"""

from collections.abc import Mapping
from typing import Any

from bearlake.protocols.pulsar.errors import Refused
from bearlake.records.json_values import loads

PARTS = ("key", "value")
_SIZE_BYTES = 4
_SUFFIX = "__value"
_NAMED = ("record", "enum", "fixed", "error")
_PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", *_NAMED)
_AVRO_TEXT = ("AVRO", "JSON", "PROTOBUF")


def split(content: bytes) -> tuple[bytes, bytes]:
    """The key's and the value's schema. Raises `Refused` (IncompatibleSchema)."""
    parts, rest = [], content
    for part in PARTS:
        size = int.from_bytes(rest[:_SIZE_BYTES], "big", signed=True)
        if len(rest) < _SIZE_BYTES + max(0, size):
            raise Refused("IncompatibleSchema", f"the {part} of the KEY_VALUE schema is truncated")
        parts.append(rest[_SIZE_BYTES : _SIZE_BYTES + max(0, size)])
        rest = rest[_SIZE_BYTES + max(0, size) :]
    return parts[0], parts[1]


def joined(key: bytes, value: bytes) -> bytes:
    """The reverse of `split`."""
    return b"".join(len(part).to_bytes(_SIZE_BYTES, "big") + part for part in (key, value))


def types_of(properties: Mapping[str, str]) -> tuple[str, str]:
    """The names of the types of key and value; empty if a property is missing."""
    return properties.get("key.schema.type", ""), properties.get("value.schema.type", "")


def record_of(content: bytes, properties: Mapping[str, str], primitives: Mapping[str, str]) -> dict[str, Any] | None:
    """The Avro record; None if a type is missing, or has no Avro schema. Raises `Refused`.

    `primitives` maps the names of Pulsar's primitive types to their Avro types.
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
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("IncompatibleSchema", "a part of the KEY_VALUE schema is not JSON") from error


def _renamed(schema: Any) -> Any:
    """The schema with a suffix on every name that it defines. (Any: possibly malformed JSON, which the registry rejects.)"""
    if isinstance(schema, str):
        return schema if schema in _PLAIN else schema + _SUFFIX
    if isinstance(schema, list):
        return [_renamed(branch) for branch in schema]
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
            {**field, "type": _renamed(field["type"])} if isinstance(field, dict) and "type" in field else field
            for field in fields
        ]
    return made
