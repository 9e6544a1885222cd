"""What a JSON Schema says about the type of a value, gathered from the schema, its `$ref` and its `allOf`.

Of `oneOf` and `anyOf`, a branch for null is left out; if one branch remains, it counts as part of the schema. Keywords that only check
values (`minimum`, `pattern`, `required`, `not`, `if`) say nothing about columns.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from bearlake.table.typed.json_documents import Place
from bearlake.table.typed.model import SchemaError

_KEYWORDS: Final = (
    "type",
    "format",
    "items",
    "prefixItems",
    "additionalProperties",
    "patternProperties",
    "enum",
    "const",
)
_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_NAMES_MAX: Final = 1_000
"""Names of types, and values of an enum, that are looked at."""
STEPS_MAX: Final = 100_000
"""Limit of the schemas and properties that are looked at while a schema is mapped: references multiply."""


class Steps:
    """How many schemas may still be looked at."""

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def take(self) -> None:
        """Count one. Raises `SchemaError`."""
        self._left -= 1
        if self._left < 0:
            raise SchemaError("the schema refers to too many schemas")


@dataclass(slots=True)
class View:
    """What was gathered. (Any: JSON.)"""

    keywords: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    """The schema of each keyword of `keywords`."""
    properties: dict[str, Place] = field(default_factory=dict)
    chain: set[int] = field(default_factory=set)
    """The schema itself, and those that it is another name of (`$ref`, a single branch), by identity."""
    is_open: bool = False
    """Whether the schema has several branches, or a reference to nothing: without a type of its own, it allows anything."""
    is_false: bool = False
    """Whether no value is good."""

    @property
    def types(self) -> set[str]:
        """The types of JSON that a value may have, without null; all of them: any. An integer is a number."""
        given = self.keywords.get("type")
        if isinstance(given, str):
            found = {given}
        elif isinstance(given, list):
            found = {name for name in given[:_NAMES_MAX] if isinstance(name, str)}
        elif self.properties:
            found = {"object"}
        elif "enum" in self.keywords or "const" in self.keywords:
            found = self._types_of_values()
        elif isinstance(self.keywords.get("items"), dict):
            found = {"array"}
        else:
            found = set(_TYPES.values())
        found = found - {"null"}
        return found - {"integer"} if "number" in found else found

    def _types_of_values(self) -> set[str]:
        values = self.keywords.get("enum", [self.keywords.get("const")])
        if not isinstance(values, list):
            return set(_TYPES.values())
        return {_TYPES[type(value)] for value in values[:_NAMES_MAX] if value is not None}


def view_of(place: Place, steps: Steps) -> View:
    """Return what a schema says. Raises `SchemaError`."""
    view = View()
    _gather(view, place, steps, set(), is_chain=True)
    return view


def _gather(view: View, place: Place, steps: Steps, seen: set[int], *, is_chain: bool) -> None:
    steps.take()
    schema = place.schema
    if not isinstance(schema, dict):
        view.is_false = view.is_false or schema is False
        return
    if id(schema) in seen:
        return
    seen.add(id(schema))
    if is_chain:
        view.chain.add(id(schema))
    for name in _KEYWORDS:
        if name in schema and name not in view.keywords:
            view.keywords[name] = schema[name]
            view.places[name] = place
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, below in properties.items():
            steps.take()
            view.properties.setdefault(name, Place(below, place.document))
    if "$ref" in schema:
        target = place.document.place_of(schema["$ref"])
        if target is None:
            view.is_open = True
        else:
            _gather(view, target, steps, seen, is_chain=is_chain)
    view.is_open = view.is_open or "$dynamicRef" in schema or "$recursiveRef" in schema
    parts = schema.get("allOf")
    together: list[Any] = parts if isinstance(parts, list) else []
    for branch in together:
        _gather(view, Place(branch, place.document), steps, seen, is_chain=is_chain and len(together) == 1)
    for name in ("oneOf", "anyOf"):
        branches = schema.get(name)
        if isinstance(branches, list):
            _choose(view, place, branches, steps, seen, is_chain=is_chain)


def _choose(view: View, place: Place, branches: list[Any], steps: Steps, seen: set[int], *, is_chain: bool) -> None:
    """Add the only branch that is not null."""
    for _ in branches:
        steps.take()
    others = [branch for branch in branches if not _is_null(branch)]
    if len(others) == 1:
        _gather(view, Place(others[0], place.document), steps, seen, is_chain=is_chain)
    elif others:
        view.is_open = True


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (
        schema.get("type") in ("null", ["null"])
        or ("const" in schema and schema["const"] is None)
        or schema.get("enum") == [None]
    )
