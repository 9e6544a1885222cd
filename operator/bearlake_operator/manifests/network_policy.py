"""The NetworkPolicy of servers or workers: clients reach the protocols' ports, and only a few pods the admin API.

Kubelets reach every port of the pods on their own node, so probes need no rule. Source: Kubernetes, Network Policies.
"""

from collections.abc import Mapping, Sequence

from bearlake_operator.manifests import Manifest, labels, server_settings
from bearlake_operator.settings import NetworkPolicies

EXECUTORS = {"podSelector": {"matchLabels": {labels.NAME: "bearlake", labels.COMPONENT: "executor"}}}
"""Spark's executor pods (`spark.py`)."""


def network_policy(
    name: str,
    selector_labels: Mapping[str, str],
    values: NetworkPolicies,
    *,
    ports: Sequence[int] = (),
    executor_ports: Sequence[int] = (),
    admin_from: Sequence[Mapping[str, object]] = (),
) -> Manifest:
    """The NetworkPolicy of the pods with these labels.

    Everybody reaches `ports`, executor pods reach `executor_ports`. The data layer's own pods, those of `values.admin_from` and of
    `admin_from` reach the admin API.
    """
    layer = {labels.NAME: "bearlake", labels.DATA_LAYER: selector_labels[labels.DATA_LAYER]}
    own = {"podSelector": {"matchLabels": layer}}
    ingress: list[Manifest] = [
        {"ports": _tcp([server_settings.ADMIN_PORT]), "from": [own, *values.admin_from, *admin_from]}
    ]
    if ports:
        ingress.append({"ports": _tcp(ports)})
    if executor_ports:
        ingress.append({"ports": _tcp(executor_ports), "from": [EXECUTORS]})
    spec: Manifest = {
        "podSelector": {"matchLabels": dict(selector_labels)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    if values.egress:
        spec["policyTypes"] = ["Ingress", "Egress"]
        dns = [{"port": port, "protocol": protocol} for port in values.dns_ports for protocol in ("UDP", "TCP")]
        spec["egress"] = [{"ports": dns}, {"to": [own, *([EXECUTORS] if executor_ports else [])]}, *values.egress]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "spec": spec,
    }


def _tcp(ports: Sequence[int]) -> list[Manifest]:
    return [{"port": port, "protocol": "TCP"} for port in ports]
