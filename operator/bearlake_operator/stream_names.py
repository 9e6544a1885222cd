"""The stream names, and the names of tables, that the Streams of a namespace may have: prefixes by namespace.

The namespace `*` stands for all others, and `{namespace}` in a prefix for the namespace's name. Without prefixes, every namespace may use
any name.
"""

import itertools
from collections.abc import Mapping, Sequence

Prefixes = Mapping[str, Sequence[str]]
"""Prefixes of stream names by namespace."""

ALL_NAMESPACES = "*"
NAMESPACE_FIELD = "{namespace}"
TABLE_NAME_CONFIG = "table.name"


def check(prefixes_of: Prefixes) -> None:
    """Raise `ValueError` if a prefix lets one namespace use the names of another."""
    starts: dict[str, str] = {}  # prefixes by their texts before `{namespace}`
    for namespace, prefixes in prefixes_of.items():
        for prefix in prefixes:
            start, field_, rest = prefix.partition(NAMESPACE_FIELD)
            if field_ and not rest.startswith((".", "_")):
                raise ValueError(
                    f"streamNames.{namespace}: {prefix!r}: {NAMESPACE_FIELD} must be followed by '.' or '_', which names of namespaces "
                    "do not contain; otherwise the namespace a could use the names of a-b"
                )
            if field_:
                starts[start] = prefix
    for start, longer in itertools.permutations(starts, 2):
        if longer.startswith(start):
            raise ValueError(
                f"streamNames: {starts[start]!r} and {starts[longer]!r}: a namespace named as the text before {NAMESPACE_FIELD} begins "
                "could use names of other namespaces; neither text may begin with the other"
            )


def refused_name(prefixes_of: Prefixes, namespace: str, name: str) -> str:
    """The message for a Stream of this namespace that may not have this stream name, else empty."""
    if not prefixes_of:
        return ""
    prefixes = _prefixes(prefixes_of, namespace)
    if name.startswith(tuple(prefixes)):
        return ""
    if not prefixes:
        return f"Streams of the namespace {namespace} may have no stream names; see streamNames in the operator's settings."
    return f"Stream names of the namespace {namespace} must begin with {' or '.join(prefixes)}, and {name} does not."


def refused_table(prefixes_of: Prefixes, namespace: str, configs: Mapping[str, str]) -> str:
    """The message for a Stream of this namespace that may not have the table name in these configs, else empty.

    A name of its own must begin like the namespace's stream names, so that no Stream can take the table of another namespace's stream. In
    table names, `_` may stand for `.`, as in the names that servers choose.
    """
    name = configs.get(TABLE_NAME_CONFIG, "")
    if not name or not refused_name(prefixes_of, namespace, name):
        return ""
    allowed = [prefix.replace(".", "_") for prefix in _prefixes(prefixes_of, namespace)]
    if name.startswith(tuple(allowed)):
        return ""
    return f"Table names of the namespace {namespace} must begin with {' or '.join(allowed)}, and {name} does not."


def _prefixes(prefixes_of: Prefixes, namespace: str) -> list[str]:
    allowed = prefixes_of.get(namespace, prefixes_of.get(ALL_NAMESPACES, ()))
    return [prefix.replace(NAMESPACE_FIELD, namespace) for prefix in allowed]
