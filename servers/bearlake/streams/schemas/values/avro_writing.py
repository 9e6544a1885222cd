"""Converts Avro's JSON encoding to the binary encoding: compiles each schema once into a function that writes values.

    null                          null
    int, long, float, double      a number; "NaN", "Infinity", "-Infinity"
    bytes, fixed                  text whose characters U+0000 to U+00FF are the bytes
    string, enum                  text
    record, map, array            an object, an object, a list
    union                         null, or {"branch": value}; a branch is a type's name, with its namespace

A missing field gets its default. Fields that the schema does not have are refused. Logical types are written as their underlying types.

Source: Avro specification 1.12, "JSON Encoding", "Binary Encoding".
"""

from collections.abc import Mapping
from typing import Any

from avro.io import BinaryEncoder
from avro.schema import Schema

from bearlake.streams.schemas.formats import avro_defaults
from bearlake.streams.schemas.values.avro_primitives import PRIMITIVES, Write, enum, fixed, object_of, shown, text
from bearlake.streams.schemas.values.model import Unfit


def compiled(schema: Schema) -> Write:
    """Return the function that writes values of a schema."""
    return _Compiler().write_of(schema)


def branch_name(schema: Any) -> str:
    """Return the name of a union's branch in the JSON encoding. (Any: the library's schema types.)"""
    name: str = schema.fullname if schema.type in ("record", "error", "enum", "fixed") else schema.type
    return name


class _Compiler:
    """Compiled functions by identity of the type, because records may be recursive."""

    def __init__(self) -> None:
        self._done: dict[int, Write] = {}

    def write_of(self, schema: Any) -> Write:
        # Any: the library's types of schemas.
        kind: str = schema.type
        if kind in PRIMITIVES:
            return PRIMITIVES[kind]
        if id(schema) in self._done:
            return lambda value, encoder: self._done[id(schema)](value, encoder)
        self._done[id(schema)] = _not_yet
        self._done[id(schema)] = made = self._made(schema, kind)
        return made

    def _made(self, schema: Any, kind: str) -> Write:
        if kind == "enum":
            return enum(list(schema.symbols))
        if kind == "fixed":
            return fixed(schema.size)
        if kind == "array":
            return _array(self.write_of(schema.items))
        if kind == "map":
            return _map(self.write_of(schema.values))
        if kind in ("union", "error_union"):
            return _union(
                {branch_name(branch): (at, self.write_of(branch)) for at, branch in enumerate(schema.schemas)}
            )
        fields = [(field.name, self.write_of(field.type), _default(field)) for field in schema.fields]
        return _record(fields)


def _not_yet(value: Any, encoder: BinaryEncoder) -> None:
    raise AssertionError("a type is used while it is compiled")


def _default(field: Any) -> tuple[Any] | None:
    """Return a field's default in JSON encoding, as a tuple of one; None if there is no default."""
    return (_encoded(field.type, field.default),) if field.has_default else None


def _encoded(schema: Any, default: Any) -> Any:
    """Convert a default, in which unions do not name their branch, to the JSON encoding, in which they do."""
    if schema.type in ("union", "error_union"):
        for branch in schema.schemas:
            if branch.type == "null" and default is None:
                return None
            if avro_defaults.fits(branch, default):
                return {branch_name(branch): _encoded(branch, default)}
    if schema.type == "array":
        return [_encoded(schema.items, item) for item in default]
    if schema.type == "map":
        return {name: _encoded(schema.values, item) for name, item in default.items()}
    if schema.type in ("record", "error") and isinstance(default, dict):
        types = {field.name: field.type for field in schema.fields}
        return {name: _encoded(types[name], value) if name in types else value for name, value in default.items()}
    return default


def _record(fields: list[tuple[str, Write, tuple[Any] | None]]) -> Write:
    names = {name for name, _, _ in fields}

    def write(value: Any, encoder: BinaryEncoder) -> None:
        members = object_of(value)
        if not members.keys() <= names:
            unknown = min(members.keys() - names)
            raise Unfit(f"the schema has no field {unknown[:100]!r}; its fields are {', '.join(sorted(names))[:500]}")
        for name, write_field, default in fields:
            if name in members:
                field = members[name]
            elif default is not None:
                field = default[0]
            else:
                raise Unfit(f"the field {name!r} is missing and has no default")
            try:
                write_field(field, encoder)
            except Unfit as error:
                raise error.within(f".{name}") from None

    return write


def _union(branches: Mapping[str, tuple[int, Write]]) -> Write:
    expected = "null or " if "null" in branches else ""
    expected += " or ".join(f'{{"{name}": …}}' for name in branches if name != "null")

    def write(value: Any, encoder: BinaryEncoder) -> None:
        if value is None and "null" in branches:
            encoder.write_long(branches["null"][0])
            return
        if not isinstance(value, dict) or len(value) != 1:
            raise Unfit(f"expected a value of the union ({expected[:500]}), not {shown(value)}")
        ((name, inner),) = value.items()
        if name not in branches or name == "null":
            raise Unfit(f"the union has no branch {name[:100]!r}: expected {expected[:500]}")
        at, write_branch = branches[name]
        encoder.write_long(at)
        try:
            write_branch(inner, encoder)
        except Unfit as error:
            raise error.within(f".{name}") from None

    return write


def _array(write_item: Write) -> Write:
    def write(value: Any, encoder: BinaryEncoder) -> None:
        if not isinstance(value, list):
            raise Unfit(f"expected a list, not {shown(value)}")
        if value:
            encoder.write_long(len(value))
            for at, item in enumerate(value):
                try:
                    write_item(item, encoder)
                except Unfit as error:
                    raise error.within(f"[{at}]") from None
        encoder.write_long(0)

    return write


def _map(write_item: Write) -> Write:
    def write(value: Any, encoder: BinaryEncoder) -> None:
        members = object_of(value)
        if members:
            encoder.write_long(len(members))
            for name, item in members.items():
                text(name, encoder)
                try:
                    write_item(item, encoder)
                except Unfit as error:
                    raise error.within(f".{name[:100]}") from None
        encoder.write_long(0)

    return write
