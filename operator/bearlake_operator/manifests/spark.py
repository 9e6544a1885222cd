"""Workers whose executors are pods: what their settings say of it, and what executors' pods are made from.

Spark's driver, in the worker's pod, makes executors' pods in the same namespace from a template, a file beside the settings; Spark adds
image, size, and how to reach the driver. Executors carry none of the labels by which a Compactor's pods are found, so that neither its
Deployment nor its autoscaler takes them for workers.
"""

import json
from typing import Any

from bearlake_operator.api import MAIN_CONTAINER, CompactorSpec
from bearlake_operator.errors import Invalid
from bearlake_operator.manifests import Manifest, config, labels, pods
from bearlake_operator.settings import DataLayer, Settings

SCHEME = "k8s://"
TEMPLATE = "executor.yaml"
CONTAINER = "executor"
"""Names that Bearlake's settings (`spark.kubernetes`) agree on."""
DRIVER_ONLY = ("BEARLAKE_METADATA__", "BEARLAKE_TABLES__")
"""Variables of what executors have no business with: they know the object store alone."""
PORTS = {"spark-driver": 7078, "spark-blocks": 7079}
"""Defaults of `spark.kubernetes.driver_port` and `block_manager_port`."""


def has_pods(spec: CompactorSpec) -> bool:
    """Whether the Compactor's executors are pods."""
    return spec.spark_master.startswith(SCHEME)


def account(settings: Settings, spec: CompactorSpec) -> str:
    """ServiceAccount of the workers' pods; empty: that of all pods. Raises `Invalid`: executors cannot be pods here."""
    if not has_pods(spec):
        return ""
    if not settings.spark_service_account:
        raise Invalid(
            f"spark.master: {spec.spark_master} needs an account that may make pods: sparkOnKubernetes.enabled=true in the chart's values"
        )
    return settings.spark_service_account


def kubernetes_settings(settings: Settings, spec: CompactorSpec) -> dict[str, Any]:
    """The section `spark.kubernetes` of the workers' settings; empty when executors are no pods."""
    if not has_pods(spec):
        return {}
    return {
        "image": settings.compactor_image,
        "pod_template_file": f"{config.FOLDER}/{TEMPLATE}",
        **spec.spark_executors,
    }


def make_driver(pod: Manifest) -> None:
    """Let the workers' pod template be that of Spark's drivers: executors belong to the pod, and reach it by two ports."""
    worker = _worker(pod)
    own_name = {"fieldRef": {"fieldPath": "metadata.name"}}
    driver = {"name": "BEARLAKE_SPARK__KUBERNETES__DRIVER_POD", "valueFrom": own_name}
    worker["env"] = [*worker.get("env", ()), driver]
    ports = [{"name": name, "containerPort": port} for name, port in PORTS.items()]
    worker["ports"] = [*worker.get("ports", ()), *ports]


def template(settings: Settings, data_layer: DataLayer, pod: Manifest) -> Manifest:
    """What executors' pods are made from, given the workers' pod template: as restricted and placed as these, with what the object
    store asks for and no other secret."""
    spec = pod["spec"]
    worker = _worker(pod)
    of_store = json.dumps(data_layer.settings.get("object_store", {}))
    secrets = [secret for secret in data_layer.files if f"{config.FILES_FOLDER}/{secret}/" in of_store]
    container = {
        "name": CONTAINER,
        **({"securityContext": worker["securityContext"]} if "securityContext" in worker else {}),
        "env": [one for one in pods.secret_variables(data_layer) if not one["name"].startswith(DRIVER_ONLY)],
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir
            *pods.file_mounts(secrets),
        ],
    }
    kept = ("securityContext", "nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {labels.NAME: "bearlake", labels.COMPONENT: "executor", labels.MANAGED_BY: "spark"}},
        "spec": {
            **{key: spec[key] for key in kept if key in spec},
            "serviceAccountName": settings.service_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}, *pods.file_volumes(secrets)],
        },
    }


def _worker(pod: Manifest) -> Manifest:
    """The worker's own container; `podTemplate` may have put others beside it."""
    found: Manifest = next(one for one in pod["spec"]["containers"] if one["name"] == MAIN_CONTAINER)
    return found
