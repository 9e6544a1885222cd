"""The desired objects as pure functions of settings and specs.

    labels.py           names and labels
    server_settings.py  the settings document of a tier's pods, in a ConfigMap
    pods.py             the pod template
    tier.py             all objects of a protocol's tier
    scaling.py          autoscalers
    compactor.py        all objects of a Compactor
    spark.py            executor pods of a Compactor's workers

These functions do no I/O and read neither a clock nor random numbers. The same input gives the same bytes, so unchanged objects are
never sent again.
"""

from typing import Any

Manifest = dict[str, Any]
"""A Kubernetes object in its JSON form."""
