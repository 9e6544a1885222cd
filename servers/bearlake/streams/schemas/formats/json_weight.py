"""How much work a JSON Schema can make of a value: the number of its nodes, with each `$ref` replaced by what it leads to.

A validator looks at no node more than once for each part of a value. What leads back to itself has no such number: two references to
one place, at each of n levels, make 2**n looks at the same part.

Source: JSON Schema core, `$ref`; RFC 6901 (JSON pointers).
"""

from typing import Any
from urllib.parse import unquote

_ELSEWHERE = ("$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties")
"""Keywords whose work depends on more than what stands below them."""


def weight(document: Any, weight_max: int) -> int:
    """The number, or `weight_max` if it is larger or cannot be said. (Any: whatever JSON can say.)"""
    try:
        return _Weights(document, weight_max).of(document)
    except RecursionError:
        return weight_max


class _Weights:
    def __init__(self, root: Any, weight_max: int) -> None:
        self._root = root
        self._max = weight_max
        self._known: dict[int, int] = {}

    def of(self, node: Any) -> int:
        if not isinstance(node, dict | list):
            return 1
        key = id(node)
        if key not in self._known:
            self._known[key] = self._max  # until it is known: a node that leads to itself has no weight
            self._known[key] = min(self._max, self._sum(node))
        return self._known[key]

    def _sum(self, node: Any) -> int:
        if isinstance(node, list):
            return 1 + sum(map(self.of, node))
        if any(key in node for key in _ELSEWHERE):
            return self._max
        if isinstance(node.get("$id", node.get("id")), str) and node is not self._root:
            return self._max  # references in it start elsewhere
        reference = node.get("$ref")
        return 1 + sum(map(self.of, node.values())) + (self._target(reference) if isinstance(reference, str) else 0)

    def _target(self, reference: str) -> int:
        """The weight of what a reference leads to; only pointers into the document itself are followed."""
        first, *steps = unquote(reference).split("/")
        if first != "#":
            return self._max
        node = self._root
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = node[name]
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            else:
                return self._max
        return self.of(node)
