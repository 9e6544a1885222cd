"""The Deployment of a tier's servers or of compaction workers.

Updates start new pods before they delete old ones. `tier.py` and `compactor.py` add the pods' template and the other objects.
"""

from collections.abc import Mapping

from bearlake_operator.manifests import Manifest, labels

SURGE = "25%"
MIN_READY_SECONDS = 5
"""Time for which a new pod must be ready before an old one is deleted."""


def deployment(name: str, selector_labels: Mapping[str, str], template: Manifest, *, replicas: int | None) -> Manifest:
    """A Deployment that starts new pods before it deletes old ones. `replicas` None: an autoscaler sets the number of pods."""
    spec: Manifest = {
        "selector": {"matchLabels": dict(selector_labels)},
        "minReadySeconds": MIN_READY_SECONDS,
        "revisionHistoryLimit": 3,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": SURGE}},
        "template": template,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "spec": spec,
    }
