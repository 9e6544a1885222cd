"""What a Compactor may say of its workers, which run beside the Secrets of the data layers and not in the Compactor's own namespace.

Whoever may make Compactors there (the usual role `edit` is enough) would otherwise mount these Secrets into pods of his own, run his own
code with them, or have an account's token sent to him. In the operator's namespace he could do so anyway.
"""

import re

from bearlake_operator.api import CompactorSpec

MASTERS = re.compile(r"local(\[(\*|[0-9]+)\])?|k8s://https://kubernetes\.default\.svc(:443)?")
"""Masters that run nothing elsewhere."""


def refusal_of(spec: CompactorSpec, namespace: str) -> str:
    """What the Compactor must not say outside of the operator's `namespace`; empty when there is nothing."""
    if spec.namespace == namespace:
        return ""
    asked = {
        "podTemplate": bool(spec.pod_template),
        "spark.conf": bool(spec.spark_conf),
        f"spark.master {spec.spark_master}": bool(spec.spark_master) and MASTERS.fullmatch(spec.spark_master) is None,
    }
    refused = [field for field, is_asked in asked.items() if is_asked]
    if not refused:
        return ""
    return (
        f"{', '.join(refused)}: only in the namespace {namespace}, where the workers run beside the data layers' Secrets. "
        "Make the Compactor there, or say it in the chart's values (tiers.compactor)."
    )
