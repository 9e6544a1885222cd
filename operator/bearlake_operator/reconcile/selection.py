"""Which streams a Compactor compacts, as name patterns: those of `streams.names`, and the names of the Streams that the selector selects.

Workers match patterns with Python's `fnmatch`. Several Compactors may have the same stream: each work item is leased to one worker.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from bearlake_operator import api
from bearlake_operator.api import CompactorSpec, Resource
from bearlake_operator.reconcile.claims import Claim, NamespacedName

NO_STREAM_PATTERN = "."
"""A pattern that matches no stream name. It stands for an empty selection, because no patterns at all mean all streams."""


def patterns(
    spec: CompactorSpec, streams: Sequence[Resource], claims: Mapping[NamespacedName, Claim]
) -> tuple[str, ...]:
    """The patterns of a Compactor's streams, those of `streams.names` first. Empty means all streams of the data layer.

    A selector covers the Streams in the Compactor's namespace and data layer that own their stream names.
    """
    selector = spec.stream_selector
    if selector is None:
        return tuple(sorted(spec.stream_names))
    found = set()
    for resource in streams:
        claim = claims.get(api.namespaced_name(resource))
        if claim is None or not claim.is_owner or claim.spec.data_layer != spec.data_layer:
            continue
        is_named = any(fnmatchcase(claim.spec.name, pattern) for pattern in spec.stream_names)
        is_same_namespace = claim.key[0] == spec.namespace
        if is_same_namespace and not is_named and matches(selector, resource["metadata"].get("labels", {})):
            found.add(claim.spec.name)
    return (*sorted(spec.stream_names), *sorted(found)) or (NO_STREAM_PATTERN,)


def covers(patterns: Sequence[str], name: str) -> bool:
    """Whether a stream matches the patterns; all streams match an empty list."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches the labels. Source: Kubernetes, LabelSelector (meta/v1)."""
    are_equal = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return are_equal and all(_matches(expression, labels) for expression in selector.get("matchExpressions", ()))


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values", ())
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:  # DoesNotExist
            return key not in labels
