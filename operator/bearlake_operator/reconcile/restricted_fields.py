"""Which fields a Compactor must not set outside of the operator's namespace.

The workers run in the operator's namespace, beside the Secrets of the data layers. Anyone who may create Compactors in another namespace
(the usual role `edit` is enough) could use these fields to mount the Secrets into pods, to run code with them, or to send a
ServiceAccount's token elsewhere. Whoever may create Compactors in the operator's namespace can read the Secrets anyway.
"""

import re

from bearlake_operator.api import CompactorSpec

LOCAL_MASTERS = re.compile(r"local(\[(\*|[0-9]+)\])?|k8s://https://kubernetes\.default\.svc(:443)?")
"""Spark masters that run code in this cluster only."""


def violation(spec: CompactorSpec, namespace: str) -> str:
    """The message for a Compactor outside of the operator's `namespace` that sets a restricted field, else empty."""
    if spec.namespace == namespace:
        return ""
    is_master_restricted = bool(spec.spark_master) and LOCAL_MASTERS.fullmatch(spec.spark_master) is None
    restricted = {
        "podTemplate": bool(spec.pod_template),
        "spark.conf": bool(spec.spark_conf),
        f"spark.master {spec.spark_master}": is_master_restricted,
    }
    used = [field for field, is_used in restricted.items() if is_used]
    if not used:
        return ""
    return (
        f"{', '.join(used)}: allowed in the namespace {namespace} only, because workers run beside the Secrets of the data layers. "
        "Create the Compactor there, or set the field in the chart's values (tiers.compactor)."
    )
