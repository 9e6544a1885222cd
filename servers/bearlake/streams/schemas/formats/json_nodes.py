"""Types for comparing JSON Schemas: a schema with its position, a change, and the interface to compare nested schemas."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

ANNOTATIONS = frozenset(
    {
        "$schema",
        "$id",
        "id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "readOnly",
        "writeOnly",
        "deprecated",
    }
    | {"definitions", "$defs", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"}
)
"""Annotation keywords: they do not constrain values."""


class Change(NamedTuple):
    """A breaking change for readers with the new schema: its kind and place."""

    kind: str
    path: str

    def __str__(self) -> str:
        """Format the change for registry clients."""
        words = self.kind.replace("_", " ").lower()
        return f'{{errorType:"{self.kind}", description:"{words}: at path \'{self.path}\' of the reader\'s schema"}}'


class Node(NamedTuple):
    """A schema with the resolver for its position. (Any: JSON, and the resolver, whose type is private to its library.)"""

    schema: Any
    resolver: Any
    is_modern: bool

    def inner(self, schema: Any) -> "Node":
        """Return a node for a schema inside this one."""
        return Node(schema, self.resolver, self.is_modern)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a keyword."""
        return self.schema.get(key, default) if isinstance(self.schema, dict) else default

    @property
    def is_empty(self) -> bool:
        """Whether the schema allows every value."""
        return self.schema is True or (isinstance(self.schema, dict) and not self.schema.keys() - ANNOTATIONS)

    @property
    def is_false(self) -> bool:
        """Whether the schema allows no value."""
        return self.schema is False or (isinstance(self.schema, dict) and self.schema.get("not") in (True, {}))


class Comparing(Protocol):
    """Compares nested schemas; see `json_changes.Comparison`."""

    def compare(self, old: Node, new: Node, path: str) -> Iterator[Change]:
        """Yield the breaking changes from `old` to `new`, which is at `path`."""

    def is_readable(self, old: Node, new: Node) -> bool:
        """Whether `new` accepts all values that `old` allows."""
