"""Breaking changes of the content of JSON objects and arrays: properties, items, and their content models.

A content model is open (the default: it allows unnamed properties), closed (`additionalProperties: false`), or partially open (it allows
only certain names or schemas). Adding a property to an open model breaks readers: writers may have used the name for something else
before. Items of tuples follow the same rules.

Source: see `json_changes`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import re2

from bearlake.streams.schemas.formats.json_nodes import Change, Comparing, Node


class Content(NamedTuple):
    """The content of an object or a tuple, by name or position; `rest` is the schema for unnamed properties or items."""

    named: dict[str, Node]
    patterns: dict[str, Node]
    rest: Node
    required: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether any unnamed property or item is allowed."""
        return self.rest.is_empty and not self.patterns

    def covering(self, name: str) -> Node | None:
        """Return the schema that applies to an unnamed property of this name; None if it is not allowed."""
        for pattern, schema in self.patterns.items():
            if _matches(pattern, name):
                return schema
        return None if self.rest.is_false else self.rest


def object_changes(comparison: Comparing, old: Node, new: Node, path: str) -> Iterator[Change]:
    """Yield breaking changes of properties, requirements and dependencies."""
    if not _may_be(old, "object") or not _may_be(new, "object"):
        return
    before, after = _properties(old), _properties(new)
    yield from _named_changes(comparison, before, after, f"{path}/properties", "PROPERTY")
    for name in sorted(after.required - before.required):
        if name not in after.named or (name in before.named and not _has_default(after.named[name])):
            yield Change("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}")
    yield from _rest_changes(comparison, before, after, f"{path}/additionalProperties", "ADDITIONAL_PROPERTIES")
    for pattern, schema in after.patterns.items():
        if pattern in before.patterns:
            yield from comparison.compare(before.patterns[pattern], schema, f"{path}/patternProperties/{pattern}")
        elif not before.rest.is_false and not comparison.is_readable(before.rest, schema):
            yield Change("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", f"{path}/patternProperties/{pattern}")
    yield from _dependencies(comparison, old, new, path)


def array_changes(comparison: Comparing, old: Node, new: Node, path: str) -> Iterator[Change]:
    """Yield breaking changes of items."""
    if not _may_be(old, "array") or not _may_be(new, "array"):
        return
    before, after = _items(old), _items(new)
    yield from _named_changes(comparison, before, after, f"{path}/items", "ITEM")
    yield from _rest_changes(comparison, before, after, f"{path}/items", "ADDITIONAL_ITEMS")


def _named_changes(comparison: Comparing, before: Content, after: Content, path: str, what: str) -> Iterator[Change]:
    for name in sorted(before.named.keys() | after.named.keys()):
        place = f"{path}/{name}"
        if name not in after.named:
            yield from _removed(comparison, before.named[name], after, name, place, what)
        elif name not in before.named:
            yield from _added(comparison, before, after, name, place, what)
        else:
            yield from comparison.compare(before.named[name], after.named[name], place)


def _removed(comparison: Comparing, old: Node, after: Content, name: str, place: str, what: str) -> Iterator[Change]:
    covering = after.covering(name)
    if covering is None:
        if not old.is_false:
            yield Change(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", place)
    elif not comparison.is_readable(old, covering):
        yield Change(f"{what}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)


def _added(
    comparison: Comparing, before: Content, after: Content, name: str, place: str, what: str
) -> Iterator[Change]:
    new, covering = after.named[name], before.covering(name)
    if before.is_open:
        if not new.is_empty:
            yield Change(f"{what}_ADDED_TO_OPEN_CONTENT_MODEL", place)
    elif covering is not None and not comparison.is_readable(covering, new):
        yield Change(f"{what}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)
    if name in after.required - before.required and not _has_default(new):
        yield Change("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", place)


def _rest_changes(comparison: Comparing, before: Content, after: Content, path: str, what: str) -> Iterator[Change]:
    old, new = before.rest, after.rest
    if old.is_false or new.is_empty:
        return
    if new.is_false:
        yield Change(f"{what}_REMOVED", path)
    elif old.is_empty:
        yield Change(f"{what}_NARROWED", path)
    else:
        yield from comparison.compare(old, new, path)


def _dependencies(comparison: Comparing, old: Node, new: Node, path: str) -> Iterator[Change]:
    before, after = _dependency_map(old), _dependency_map(new)
    for name in sorted(after):
        place, now = f"{path}/dependencies/{name}", after[name]
        then = before.get(name)
        if isinstance(now, list):
            if not isinstance(then, list):
                yield Change("DEPENDENCY_ARRAY_ADDED", place)
            elif not set(now) <= set(then):
                yield Change(f"DEPENDENCY_ARRAY_{'EXTENDED' if set(now) > set(then) else 'CHANGED'}", place)
        elif then is None or isinstance(then, list):
            yield Change("DEPENDENCY_SCHEMA_ADDED", place)
        else:
            yield from comparison.compare(old.inner(then), new.inner(now), place)


def _dependency_map(node: Node) -> dict[str, Any]:
    return {**node.get("dependencies", {}), **node.get("dependentRequired", {}), **node.get("dependentSchemas", {})}


def _properties(node: Node) -> Content:
    required = node.get("required", [])
    return Content(
        named={name: node.inner(schema) for name, schema in node.get("properties", {}).items()},
        patterns={name: node.inner(schema) for name, schema in node.get("patternProperties", {}).items()},
        rest=node.inner(node.get("additionalProperties", True)),
        required=frozenset(required if isinstance(required, list) else ()),
    )


def _items(node: Node) -> Content:
    """Return a tuple's content with positions as names, padded so that they sort; draft 2020-12 calls the items `prefixItems`."""
    items = node.get("items", True)
    positions = node.get("prefixItems", items if isinstance(items, list) else [])
    rest = node.get("additionalItems", True) if isinstance(items, list) else items
    return Content(
        named={f"{at:06}": node.inner(schema) for at, schema in enumerate(positions)},
        patterns={},
        rest=node.inner(rest),
    )


def _has_default(node: Node) -> bool:
    return isinstance(node.schema, dict) and "default" in node.schema


def _may_be(node: Node, kind: str) -> bool:
    types = node.get("type", kind)
    return kind in ([types] if isinstance(types, str) else types)


def _matches(pattern: str, name: str) -> bool:
    """Whether the pattern matches, in linear time; a pattern that a linear-time engine does not support matches nothing."""
    try:
        return re2.search(pattern, name, options=_QUIET) is not None
    except re2.error:
        return False


_QUIET = re2.Options()
_QUIET.log_errors = False
