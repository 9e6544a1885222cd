"""The desired state as plain objects: pure functions from settings and specs to manifests.

    labels.py    names and labels
    config.py    the settings document of a tier's pods, in a ConfigMap
    pods.py      the pod template
    tier.py      all objects of a protocol's tier
    scaling.py   autoscalers
    compactor.py all objects of a Compactor

Nothing here asks the cluster, knows the time or a random number: the same input gives the same bytes, so that an unchanged world
is left alone.
"""

from typing import Any

Manifest = dict[str, Any]
"""A Kubernetes object as JSON has it."""
