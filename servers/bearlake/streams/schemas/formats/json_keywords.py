"""Breaking changes of JSON Schema's keywords about single values: types, enumerations, numbers, lengths, patterns, counts.

Source: see `json_changes`.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from bearlake.streams.schemas.formats import documents
from bearlake.streams.schemas.formats.json_nodes import Change, Node

ALL_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})

UPPER = {
    "maxLength": "MAX_LENGTH",
    "maximum": "MAXIMUM",
    "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "maxItems": "MAX_ITEMS",
    "maxProperties": "MAX_PROPERTIES",
}
"""Limits that a new schema may raise."""

LOWER = {
    "minLength": "MIN_LENGTH",
    "minimum": "MINIMUM",
    "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "minItems": "MIN_ITEMS",
    "minProperties": "MIN_PROPERTIES",
}
"""Limits that a new schema may lower."""


def changes(old: Node, new: Node, path: str, *, is_summed: bool) -> Iterator[Change]:
    """Yield the breaking changes of these keywords. Skips types if the comparison handles a sum by its parts (`is_summed`)."""
    if not is_summed or (old.get("type") and new.get("type")):
        yield from _types(old, new, path)
    yield from _enumerations(old, new, path)
    before, after = _limits(old), _limits(new)
    for key, name in UPPER.items():
        yield from _limit(before.get(key), after.get(key), name, f"{path}/{key}", is_upper=True)
    for key, name in LOWER.items():
        yield from _limit(before.get(key), after.get(key), name, f"{path}/{key}", is_upper=False)
    yield from _multiples(before.get("multipleOf"), after.get("multipleOf"), f"{path}/multipleOf")
    yield from _patterns(old.get("pattern"), new.get("pattern"), f"{path}/pattern")
    if new.get("uniqueItems") is True and old.get("uniqueItems") is not True:
        yield Change("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems")


def _types(old: Node, new: Node, path: str) -> Iterator[Change]:
    before, after = _type_set(old), _type_set(new)
    if not before <= after:
        yield Change("TYPE_NARROWED" if after < before else "TYPE_CHANGED", path)


def _type_set(node: Node) -> frozenset[str]:
    types = node.get("type")
    if types is None:
        values = _values(node)
        return ALL_TYPES if values is None else frozenset(_type_of(value) for value in values)
    found = frozenset([types] if isinstance(types, str) else types)
    return found | {"integer"} if "number" in found else found


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "array" if isinstance(value, list) else "object"


def _values(node: Node) -> list[Any] | None:
    """Return the values that `enum` or `const` allow; None: any value."""
    if isinstance(node.schema, dict) and "const" in node.schema:
        return [node.schema["const"]]
    values = node.get("enum")
    return values if isinstance(values, list) else None


def _enumerations(old: Node, new: Node, path: str) -> Iterator[Change]:
    before, after = _values(old), _values(new)
    if after is None:
        return
    if before is None:
        yield Change("ENUM_ARRAY_NARROWED", f"{path}/enum")
        return
    then, now = {_identity(value) for value in before}, {_identity(value) for value in after}
    if not then <= now:
        yield Change(f"ENUM_ARRAY_{'NARROWED' if now <= then else 'CHANGED'}", f"{path}/enum")


def _identity(value: Any) -> str:
    """Return a key that is equal only for equal JSON values; Python treats true and 1 as equal."""
    is_whole = isinstance(value, float) and value.is_integer()
    return documents.dump(int(value) if is_whole else value, is_sorted=True)


def _limits(node: Node) -> dict[str, Fraction]:
    """Return the numeric keywords as exact fractions; converts draft 4's boolean `exclusiveMaximum` to the later form."""
    found = {}
    for key in (*UPPER, *LOWER, "multipleOf"):
        value = node.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = Fraction(value) if isinstance(value, int) else Fraction(repr(value))
    for exclusive, plain in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        if node.get(exclusive) is True and plain in found:
            found[exclusive] = found.pop(plain)
    return found


def _limit(
    before: Fraction | None, after: Fraction | None, name: str, path: str, *, is_upper: bool
) -> Iterator[Change]:
    if after is None or before == after:
        return
    if before is None:
        yield Change(f"{name}_ADDED", path)
    elif (after < before) is is_upper:
        yield Change(f"{name}_{'DECREASED' if is_upper else 'INCREASED'}", path)


def _multiples(before: Fraction | None, after: Fraction | None, path: str) -> Iterator[Change]:
    if after is None or before == after:
        return
    if before is None:
        yield Change("MULTIPLE_OF_ADDED", path)
    elif not after or before % after:
        yield Change(f"MULTIPLE_OF_{'EXPANDED' if before and after % before == 0 else 'CHANGED'}", path)


def _patterns(before: str | None, after: str | None, path: str) -> Iterator[Change]:
    if after is not None and before != after:
        yield Change(f"PATTERN_{'ADDED' if before is None else 'CHANGED'}", path)
