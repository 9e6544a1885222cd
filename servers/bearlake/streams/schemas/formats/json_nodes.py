"""What comparing JSON Schemas speaks of: a schema in its place, a change, and comparing one more pair."""

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
"""Keywords that allow and forbid nothing."""


class Change(NamedTuple):
    """What a reader with the new schema does not understand any more: the kind of change, and where."""

    kind: str
    path: str

    def __str__(self) -> str:
        """As registry clients get it."""
        words = self.kind.replace("_", " ").lower()
        return f'{{errorType:"{self.kind}", description:"{words}: at path \'{self.path}\' of the reader\'s schema"}}'


class Node(NamedTuple):
    """A schema in its place. (Any: JSON, and the resolver, whose type is private to its library.)"""

    schema: Any
    resolver: Any
    is_modern: bool

    def inner(self, schema: Any) -> "Node":
        """A schema inside this one."""
        return Node(schema, self.resolver, self.is_modern)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a keyword."""
        return self.schema.get(key, default) if isinstance(self.schema, dict) else default

    @property
    def is_empty(self) -> bool:
        """Whether it allows everything."""
        return self.schema is True or (isinstance(self.schema, dict) and not self.schema.keys() - ANNOTATIONS)

    @property
    def is_false(self) -> bool:
        """Whether it allows nothing."""
        return self.schema is False or (isinstance(self.schema, dict) and self.schema.get("not") in (True, {}))


class Comparing(Protocol):
    """Compares what lies inside; see `json_changes.Comparison`."""

    def compare(self, old: Node, new: Node, path: str) -> Iterator[Change]:
        """The breaking changes from `old` to `new`, which is at `path`."""

    def is_readable(self, old: Node, new: Node) -> bool:
        """Whether `new` reads all that `old` allows."""
