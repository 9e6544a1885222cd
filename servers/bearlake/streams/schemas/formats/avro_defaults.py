"""Default values of Avro fields: each must be a value of its field's type, which Apache Avro's Python library does not check.

Source: Avro specification 1.12, "Complex Types", the table of field default values; a union's default may be of any of its types.
"""

from collections.abc import Iterator
from typing import Any

from avro.schema import Schema

from bearlake.streams.schemas.problems import InvalidSchema

INTEGER_BITS = {"int": 31, "long": 63}


def check(schema: Schema) -> None:
    """Raise `InvalidSchema` for the first default that does not fit its field's type."""
    for type_ in types_of(schema):
        for field in getattr(type_, "fields", ()):
            if field.has_default and not fits(field.type, field.default):
                raise InvalidSchema(
                    f"Invalid schema of type AVRO: invalid default for field {field.name}: {field.default!r} is no {field.type.type}"
                )


def types_of(schema: Schema) -> Iterator[Any]:
    """Yield the schema and all types inside it, each once. (Any: the library's schema types.)"""
    seen: set[int] = set()
    waiting: list[Any] = [schema]
    while waiting:
        type_ = waiting.pop()
        if id(type_) not in seen:
            seen.add(id(type_))
            yield type_
            waiting += [field.type for field in getattr(type_, "fields", ())]
            waiting += getattr(type_, "schemas", ())
            waiting += [
                inner for name in ("items", "values") if isinstance(inner := getattr(type_, name, None), Schema)
            ]


def fits(schema: Any, value: Any) -> bool:
    """Whether a default is a value of the type."""
    # Any: the library's schema types, and any JSON value.
    kind = schema.type
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in INTEGER_BITS:
        return isinstance(value, int) and not isinstance(value, bool) and -1 <= value >> INTEGER_BITS[kind] <= 0
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind in ("string", "bytes", "fixed", "enum"):
        return isinstance(value, str)
    if kind == "array":
        return isinstance(value, list) and all(fits(schema.items, item) for item in value)
    if kind == "map":
        return isinstance(value, dict) and all(fits(schema.values, item) for item in value.values())
    if kind in ("union", "error_union"):
        return any(fits(branch, value) for branch in schema.schemas)
    return isinstance(value, dict) and all(
        fits(field.type, value[field.name]) if field.name in value else field.has_default for field in schema.fields
    )
