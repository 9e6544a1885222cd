"""Names and labels of the operator's objects, all in its own namespace, where the Secrets of the data layers are.

The operator may change and delete every object with the label `app.kubernetes.io/managed-by: bearlake-operator`.
"""

import hashlib
from collections.abc import Mapping

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
OPERATOR = "bearlake-operator"
DATA_LAYER = "bearlake.dev/data-layer"
COMPACTOR = "bearlake.dev/compactor"
SETTINGS_HASH = "bearlake.dev/settings-hash"
STREAMS = "bearlake.dev/streams"
"""Annotation of workers' pods: patterns of the streams that they compact, as a JSON list. The metrics API reads the backlog of these."""
NAME_LENGTH_MAX = 47


def tier_name(data_layer: str, tier: str) -> str:
    """The name of a tier's objects: `bearlake-default-kafka`."""
    return _bounded(f"bearlake-{data_layer}-{tier}")


def compactor_name(namespace: str, name: str) -> str:
    """The name of a Compactor's objects: `bearlake-compactor-team-a-nightly`."""
    return _bounded(f"bearlake-compactor-{namespace}-{name}")


def import_name(data_layer: str, source: str) -> str:
    """The name of the objects of an import: `bearlake-default-import-old`."""
    return tier_name(data_layer, _import(source))


def import_selector(data_layer: str, source: str) -> Mapping[str, str]:
    """The labels that select the pod of an import."""
    return selector(data_layer, _import(source))


def _import(source: str) -> str:
    return f"import-{source}"


def group_of(labels: Mapping[str, str]) -> str:
    """The group of an object with these labels, a tier or a Compactor's workers: the name of its Deployment."""
    return labels.get(COMPACTOR) or tier_name(labels.get(DATA_LAYER, ""), labels.get(COMPONENT, ""))


def _bounded(name: str) -> str:
    """The name, or a prefix and a hash if it is too long. A Service name has at most 63 characters, and some have a suffix."""
    if len(name) <= NAME_LENGTH_MAX:
        return name
    return f"{name[: NAME_LENGTH_MAX - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def selector(data_layer: str, component: str) -> Mapping[str, str]:
    """The labels that select a tier's pods. They never change: selectors of Deployments are immutable."""
    return {NAME: "bearlake", COMPONENT: component, DATA_LAYER: data_layer}


def compactor_selector(data_layer: str, objects_name: str) -> Mapping[str, str]:
    """The labels that select the pods of a Compactor, given the name of its objects."""
    return {**selector(data_layer, "compactor"), COMPACTOR: objects_name}


def managed(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of an object of the operator."""
    return {**labels, MANAGED_BY: OPERATOR}
