"""Avro's types as objects: names are resolved, so that a type that uses itself refers to itself.

Checks what typed columns need, not all that the specification demands: the registry has checked the schema.
Source: Apache Avro 1.12 specification, "Schema Declaration", "Names".
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bearlake.kernel import FIXED_BYTES_MAX
from bearlake.table.typed.model import SchemaError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
NAME_CHARS_MAX = 255
"""Longest name (characters) of a field or type: names become columns, and are in the metadata of every snapshot."""


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: "AvroType"
    aliases: tuple[str, ...]


@dataclass(slots=True, eq=False)
class AvroType:
    """A type; types are compared by identity."""

    kind: str
    """A primitive type, or `record`, `enum`, `fixed`, `array`, `map`, `union`."""
    name: str
    """The full name of a named type, else the kind."""
    logical: dict[str, Any] = field(default_factory=dict)
    """The declaration, if it has a logical type (Any: any JSON)."""
    fields: list[AvroField] = field(default_factory=list)
    below: "list[AvroType]" = field(default_factory=list)
    """Branches of a union; the type of an array's elements or a map's values."""
    symbols: tuple[str, ...] = ()
    size: int = 0


def parse(text: str, references: Iterable[str] = ()) -> AvroType:
    """Parse a schema; `references` are the schemas whose names it uses, each after those that it uses itself. Raises `SchemaError`."""
    types: dict[str, AvroType] = {}
    try:
        for reference in references:
            _parse(_loaded(reference), "", types, "")
        return _parse(_loaded(text), "", types, "")
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error


def _loaded(text: str) -> Any:
    try:
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()  # refuses lone surrogates
        return document
    except ValueError as error:
        if text.strip() in PRIMITIVES:  # a bare word, as some tools write primitive schemas
            return text.strip()
        raise SchemaError(f"the schema is not JSON: {error}") from error


def _parse(document: Any, namespace: str, types: dict[str, AvroType], path: str) -> AvroType:
    if isinstance(document, str):
        return _named(document, namespace, types, path)
    if isinstance(document, list):
        branches = [_parse(branch, namespace, types, path) for branch in document]
        if not branches or any(branch.kind == "union" for branch in branches):
            raise SchemaError("a union without branches, or inside of a union", path)
        if sum(branch.kind == "null" for branch in branches) > 1:
            raise SchemaError("a union with two nulls", path)
        return AvroType("union", "union", below=branches)
    if not isinstance(document, dict):
        raise SchemaError(f"{document!r:.40} is no type", path)
    kind = document.get("type")
    if isinstance(kind, dict | list):
        return _parse(kind, namespace, types, path)
    if kind in _NAMED:
        return _declared(document, namespace, types, path)
    logical = document if isinstance(document.get("logicalType"), str) else {}
    if kind in ("array", "map"):
        key = "items" if kind == "array" else "values"
        inner = _parse(document.get(key), namespace, types, _join(path, "element" if kind == "array" else "value"))
        return AvroType(str(kind), str(kind), logical, below=[inner])
    if kind in PRIMITIVES:
        return AvroType(str(kind), str(kind), logical)
    if isinstance(kind, str):
        return _named(kind, namespace, types, path)
    raise SchemaError("a type without a kind", path)


def _named(name: str, namespace: str, types: dict[str, AvroType], path: str) -> AvroType:
    if name in PRIMITIVES:
        return AvroType(name, name)
    full = f"{namespace}.{name}" if namespace and "." not in name else name
    found = types.get(full) or types.get(name)
    if found is None:
        raise SchemaError(f"no type {name!r:.80} is declared", path)
    return found


def _declared(document: dict[str, Any], namespace: str, types: dict[str, AvroType], path: str) -> AvroType:
    kind, name = document["type"], document.get("name")
    if not isinstance(name, str) or not name:
        raise SchemaError(f"a {kind} without a name", path)
    space, dot, short = name.rpartition(".")
    _check_name(short, path)
    own = document.get("namespace")
    inner = space if dot else own if isinstance(own, str) else namespace
    full = f"{inner}.{short}" if inner else short
    logical = document if isinstance(document.get("logicalType"), str) else {}
    made = AvroType("record" if kind == "error" else kind, full, logical)
    types[full] = made
    if kind == "enum":
        made.symbols = _texts(document.get("symbols"), path)
    elif kind == "fixed":
        size = document.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= FIXED_BYTES_MAX:
            raise SchemaError(f"a fixed of size {size!r:.20}; the limit is {FIXED_BYTES_MAX} bytes", path)
        made.size = size
    else:
        made.fields = [_field(item, inner, types, path) for item in _list(document.get("fields"), path)]
        if len({found.name for found in made.fields}) < len(made.fields):  # both would have one column
            raise SchemaError("two fields of one name", path)
    return made


def _field(document: Any, namespace: str, types: dict[str, AvroType], path: str) -> AvroField:
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise SchemaError("a field without a name", path)
    name = document["name"]
    _check_name(name, path)
    aliases = document.get("aliases")
    former = tuple(alias for alias in aliases if isinstance(alias, str)) if isinstance(aliases, list) else ()
    return AvroField(name, _parse(document.get("type"), namespace, types, _join(path, name)), former)


def _check_name(name: str, path: str) -> None:
    """Raise `SchemaError` unless Avro's Java library takes the name: letters, digits and underscores, at first no digit."""
    if not name.isidentifier() or len(name) > NAME_CHARS_MAX:
        raise SchemaError(
            f"the name {name!r:.80}; expected letters, digits and _, and at most {NAME_CHARS_MAX} of them", path
        )


def _texts(value: Any, path: str) -> tuple[str, ...]:
    found = _list(value, path)
    if not found or not all(isinstance(text, str) for text in found):
        raise SchemaError("an enum without symbols", path)
    return tuple(found)


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise SchemaError(f"{value!r:.40} is no list", path)
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def short_name(avro: AvroType) -> str:
    """Return the name of a type without its namespace: the name of a union's branch."""
    return avro.name.rpartition(".")[2]
