"""Which streams a Compactor's workers compact, as patterns of names: what its `streams` name, and the Streams that its selector selects.

Workers read patterns as Python's `fnmatch` does. Several Compactors may have the same stream: a work item is one worker's.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from bearlake_operator import api
from bearlake_operator.api import CompactorSpec, Resource
from bearlake_operator.reconcile.claims import Claim, Key

NOTHING = "."
"""A pattern that no stream's name fits: a selector that selects nothing is not one that selects everything."""


def patterns(spec: CompactorSpec, streams: Sequence[Resource], claims: Mapping[Key, Claim]) -> tuple[str, ...]:
    """The patterns of a Compactor's streams, those that it names first; none at all: all streams of the data layer.

    A selector looks at the Streams of the Compactor's own namespace and data layer that have their names.
    """
    selector = spec.stream_selector
    if selector is None:
        return tuple(sorted(spec.stream_names))
    found = set()
    for resource in streams:
        claim = claims.get(api.key_of(resource))
        if claim is None or not claim.is_owner or claim.spec.data_layer != spec.data_layer:
            continue
        is_named = any(fnmatchcase(claim.spec.name, pattern) for pattern in spec.stream_names)
        is_near = claim.key[0] == spec.namespace
        if is_near and not is_named and selects(selector, resource["metadata"].get("labels", {})):
            found.add(claim.spec.name)
    return (*sorted(spec.stream_names), *sorted(found)) or (NOTHING,)


def covers(chosen: Sequence[str], name: str) -> bool:
    """Whether these patterns (see `patterns`) have the stream."""
    return not chosen or any(fnmatchcase(name, pattern) for pattern in chosen)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects what has these labels. Source: Kubernetes, LabelSelector (meta/v1)."""
    equal = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return equal and all(_holds(one, labels) for one in selector.get("matchExpressions", ()))


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
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
