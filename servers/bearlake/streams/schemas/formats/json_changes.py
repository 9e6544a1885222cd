"""Breaking changes between two JSON Schemas: changes after which the new schema rejects values that the old one allowed.

A schema is a set of keywords that must all hold; `json_keywords` and `json_content` have the rules for each kind. This module has the
comparison itself and the combinators: a sum (anyOf, oneOf) may grow, a product (allOf) may shrink, and `not` reverses the direction.

The comparison visits each pair of recursive schemas once. The work is bounded: beyond the bound, the comparison is refused.

Source: Confluent, "JSON Schema compatibility rules"; R. Yokota, "Understanding JSON Schema Compatibility" (open, closed and
partially open content models); the names of changes are those of Confluent's messages.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from bearlake.streams.schemas.formats import json_content, json_keywords
from bearlake.streams.schemas.formats.json_nodes import ANNOTATIONS, Change, Node
from bearlake.streams.schemas.problems import SchemaTooLarge

STEP_COUNT_MAX = 20_000
"""Most pairs of schemas in one comparison: at most a second of work."""

SUMS = ("oneOf", "anyOf")


class Comparison:
    """One comparison of two schemas; call `changes` once."""

    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()
        self._known: dict[tuple[int, int], bool] = {}
        self._temporary: list[Any] = []
        """Keeps temporary schemas alive, so that their `id()` values stay unique."""
        self._step_count = 0

    def changes(self, old: Node, new: Node, path: str = "#") -> list[Change]:
        """Return all breaking changes from `old` to `new`. Raises `SchemaTooLarge`."""
        return list(self.compare(old, new, path))

    def is_readable(self, old: Node, new: Node) -> bool:
        """Whether `new` accepts all values that `old` allows."""
        pair = (id(old.schema), id(new.schema))
        if pair in self._known:
            return self._known[pair]
        is_readable = next(self.compare(old, new, "#"), None) is None
        if not is_readable or not self._under_way:  # else the answer depends on pairs still being compared
            self._known[pair] = is_readable
        return is_readable

    def compare(self, old: Node, new: Node, path: str) -> Iterator[Change]:
        """Yield the breaking changes from `old` to `new`, which is at `path`."""
        self._step_count += 1
        if self._step_count > STEP_COUNT_MAX:
            raise SchemaTooLarge(f"the schemas need more than {STEP_COUNT_MAX} steps to be compared")
        old, new = self._resolved(old), self._resolved(new)
        pair = (id(old.schema), id(new.schema))
        if new.is_empty or old.is_false or pair in self._under_way:
            return
        if new.is_false:
            yield Change("TYPE_NARROWED", path)
            return
        self._under_way.add(pair)
        try:
            yield from self._compare_keywords(old, new, path)
        finally:
            self._under_way.discard(pair)

    def _compare_keywords(self, old: Node, new: Node, path: str) -> Iterator[Change]:
        yield from self._sums(old, new, path)
        yield from self._products(old, new, path)
        yield from self._negations(old, new, path)
        yield from json_keywords.changes(old, new, path, is_summed=any(_parts(node, SUMS) for node in (old, new)))
        yield from json_content.object_changes(self, old, new, path)
        yield from json_content.array_changes(self, old, new, path)

    def _resolved(self, node: Node) -> Node:
        """Return the node itself, or the target of its `$ref`."""
        for _ in range(100):
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node
            rest = {key: value for key, value in node.schema.items() if key != "$ref" and key not in ANNOTATIONS}
            if node.is_modern and rest:
                joined = {"allOf": [{"$ref": reference}, rest]}
                self._temporary.append(joined)
                return node.inner(joined)
            found = node.resolver.lookup(reference)
            node = Node(found.contents, found.resolver, node.is_modern)
        raise SchemaTooLarge("a chain of $refs is too long")

    def _sums(self, old: Node, new: Node, path: str) -> Iterator[Change]:
        olds, news = _parts(old, SUMS), _parts(new, SUMS)
        if news and not olds:
            olds = self._each_type(old)
            if not self._all_matched(olds, news, is_one_to_one=False):
                yield Change("TYPE_NARROWED", f"{path}/{_sum_of(new)}")
        elif olds and not news:
            plain = new.inner({key: value for key, value in new.schema.items() if key not in ANNOTATIONS})
            self._temporary.append(plain.schema)
            if plain.schema and not all(self.is_readable(node, plain) for node in olds):
                yield Change("COMBINED_TYPE_CHANGED", path)
        elif olds and news:
            if (_sum_of(old), _sum_of(new)) == ("anyOf", "oneOf"):
                yield Change("COMBINED_TYPE_CHANGED", path)
            if len(olds) > len(news):
                yield Change("SUM_TYPE_NARROWED", f"{path}/{_sum_of(new)}")
            elif not self._all_matched(olds, news, is_one_to_one=True):
                yield Change("COMBINED_TYPE_SUBSCHEMAS_CHANGED", f"{path}/{_sum_of(new)}")

    def _products(self, old: Node, new: Node, path: str) -> Iterator[Change]:
        olds, news = _parts(old, ("allOf",)), _parts(new, ("allOf",))
        if not news:
            if olds and not _without(new, ("allOf",)):
                return
            if olds:
                plain = new.inner(_without(new, ("allOf",)))
                self._temporary.append(plain.schema)
                if not any(self.is_readable(node, plain) for node in olds):
                    yield Change("COMBINED_TYPE_CHANGED", path)
            return
        candidates = [*olds, old.inner(_without(old, ("allOf",)))]
        self._temporary.append(candidates[-1].schema)
        if olds and len(news) > len(olds):
            yield Change("PRODUCT_TYPE_EXTENDED", f"{path}/allOf")
        elif not all(any(self.is_readable(before, after) for before in candidates) for after in news):
            yield Change("COMBINED_TYPE_SUBSCHEMAS_CHANGED" if olds else "TYPE_NARROWED", f"{path}/allOf")

    def _negations(self, old: Node, new: Node, path: str) -> Iterator[Change]:
        before, after = old.get("not"), new.get("not")
        if after is None:
            return
        if before is None or not self.is_readable(new.inner(after), old.inner(before)):
            yield Change("NOT_TYPE_EXTENDED", f"{path}/not")

    def _each_type(self, node: Node) -> list[Node]:
        """Split a schema with several types into one schema per type."""
        types = node.get("type")
        if not isinstance(types, list) or len(types) < 2:
            return [node]
        several = [{**node.schema, "type": type_} for type_ in types]
        self._temporary += several
        return [node.inner(schema) for schema in several]

    def _all_matched(self, olds: Sequence[Node], news: Sequence[Node], *, is_one_to_one: bool) -> bool:
        """Whether a new schema reads each old one; with `is_one_to_one`, a different one each (maximum bipartite matching)."""
        readers = [[at for at, new in enumerate(news) if self.is_readable(old, new)] for old in olds]
        if not is_one_to_one:
            return all(readers)
        owner: dict[int, int] = {}
        return all(_augment(at, readers, owner, set()) for at in range(len(olds)))


def _augment(at: int, readers: Sequence[Sequence[int]], owner: dict[int, int], seen: set[int]) -> bool:
    for reader in readers[at]:
        if reader not in seen:
            seen.add(reader)
            if reader not in owner or _augment(owner[reader], readers, owner, seen):
                owner[reader] = at
                return True
    return False


def _sum_of(node: Node) -> str:
    return next(key for key in SUMS if node.get(key))


def _parts(node: Node, keys: Sequence[str]) -> list[Node]:
    """Return the schemas of the first of these combinators that the node has."""
    for key in keys:
        if node.get(key):
            return [node.inner(schema) for schema in node.get(key)]
    return []


def _without(node: Node, keys: Sequence[str]) -> dict[str, Any]:
    if not isinstance(node.schema, dict):
        return {}
    return {key: value for key, value in node.schema.items() if key not in keys and key not in ANNOTATIONS}
