"""Names and labels of what the operator makes, all of it in the operator's own namespace, where the data layers' Secrets are.

Whatever carries `managed-by: bearlake-operator` is the operator's to change and to remove.
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
"""Annotation of workers' pods: patterns of the streams that they compact, as a JSON list. The metrics API asks for the backlog of these."""
NAME_LENGTH_MAX = 47


def tier_name(data_layer: str, tier: str) -> str:
    """Name of a tier's objects: `bearlake-default-kafka`."""
    return _bounded(f"bearlake-{data_layer}-{tier}")


def compactor_name(namespace: str, name: str) -> str:
    """Name of the objects of a Compactor: `bearlake-compactor-team-a-nightly`."""
    return _bounded(f"bearlake-compactor-{namespace}-{name}")


def group_of(labels: Mapping[str, str]) -> str:
    """The tier, or the Compactor's workers, that an object with these labels belongs to: the name of its Deployment."""
    return labels.get(COMPACTOR) or tier_name(labels.get(DATA_LAYER, ""), labels.get(COMPONENT, ""))


def _bounded(name: str) -> str:
    """The name, or its beginning with a hash: Services have names of at most 63 characters, and some add to this one."""
    if len(name) <= NAME_LENGTH_MAX:
        return name
    return f"{name[: NAME_LENGTH_MAX - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def selector(data_layer: str, component: str) -> Mapping[str, str]:
    """The labels by which a tier's pods are found; they never change."""
    return {NAME: "bearlake", COMPONENT: component, DATA_LAYER: data_layer}


def compactor_selector(data_layer: str, objects_name: str) -> Mapping[str, str]:
    """The labels by which the pods of a Compactor, whose objects have this name, are found."""
    return {**selector(data_layer, "compactor"), COMPACTOR: objects_name}


def managed(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of an object."""
    return {**labels, MANAGED_BY: OPERATOR}
