"""Weight of a JSON Schema, a bound on validation work: its number of nodes, with each `$ref` replaced by its target.

A validator checks each of these nodes at most once per part of a value. The number can be exponential: two references to one place, at each
of n levels, cause 2**n checks of the same part. A recursive schema has no finite weight.

Source: JSON Schema core, `$ref`; RFC 6901 (JSON pointers).
"""

from typing import Any
from urllib.parse import unquote

_ELSEWHERE = ("$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties")
"""Keywords whose work depends on more than their subschemas."""


def weight(document: Any, weight_max: int) -> int:
    """Return the weight, or `weight_max` if it is larger or not finite. (Any: any JSON value.)"""
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
            self._known[key] = self._max  # until known, so that recursive nodes get the maximum
            self._known[key] = min(self._max, self._sum(node))
        return self._known[key]

    def _sum(self, node: Any) -> int:
        if isinstance(node, list):
            return 1 + sum(map(self.of, node))
        if any(key in node for key in _ELSEWHERE):
            return self._max
        if isinstance(node.get("$id", node.get("id")), str) and node is not self._root:
            return self._max  # references inside resolve against another base URI
        reference = node.get("$ref")
        return 1 + sum(map(self.of, node.values())) + (self._target(reference) if isinstance(reference, str) else 0)

    def _target(self, reference: str) -> int:
        """Return the weight of a reference's target; follows only pointers into the same document."""
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
