"""Executor pods of a Compactor's workers: the workers' settings, and the template of executor pods.

The Spark driver in a worker's pod creates executor pods in the same namespace. It reads their template from a file beside the settings,
and adds the image, the size and the driver's address. Executor pods do not have the labels that select a Compactor's pods, so neither
the Deployment nor the autoscaler counts them as workers.
"""

import json
from typing import Any

from bearlake_operator.api import MAIN_CONTAINER, CompactorSpec
from bearlake_operator.errors import Invalid
from bearlake_operator.manifests import Manifest, labels, pods, server_settings
from bearlake_operator.settings import DataLayer, Settings

SCHEME = "k8s://"
TEMPLATE = "executor.yaml"
CONTAINER = "executor"
"""Names that the servers' settings `spark.kubernetes` expect."""
DRIVER_ONLY_PREFIXES = ("BEARLAKE_METADATA__", "BEARLAKE_TABLES__")
"""Prefixes of variables that executors must not get: they access the object store only."""
PORTS = {"spark-driver": 7078, "spark-blocks": 7079}
"""Defaults of `spark.kubernetes.driver_port` and `block_manager_port`."""


def runs_executor_pods(spec: CompactorSpec) -> bool:
    """Whether the Compactor's executors are pods."""
    return spec.spark_master.startswith(SCHEME)


def service_account(settings: Settings, spec: CompactorSpec) -> str:
    """ServiceAccount of workers that create executor pods, else empty. Raises `Invalid` if executor pods are not enabled."""
    if not runs_executor_pods(spec):
        return ""
    if not settings.spark_service_account:
        raise Invalid(
            f"spark.master: {spec.spark_master} needs a ServiceAccount that may create pods: "
            "set sparkOnKubernetes.enabled=true in the chart's values"
        )
    return settings.spark_service_account


def kubernetes_settings(settings: Settings, spec: CompactorSpec) -> dict[str, Any]:
    """The section `spark.kubernetes` of the workers' settings; empty without executor pods."""
    if not runs_executor_pods(spec):
        return {}
    return {
        "image": settings.compactor_image,
        "pod_template_file": f"{server_settings.FOLDER}/{TEMPLATE}",
        **spec.spark_executors,
    }


def configure_driver(pod: Manifest) -> None:
    """Change the workers' pod template to that of Spark drivers: they own their executor pods, which connect to two of their ports."""
    worker = _worker(pod)
    own_name = {"fieldRef": {"fieldPath": "metadata.name"}}
    driver = {"name": "BEARLAKE_SPARK__KUBERNETES__DRIVER_POD", "valueFrom": own_name}
    worker["env"] = [*worker.get("env", ()), driver]
    ports = [{"name": name, "containerPort": port} for name, port in PORTS.items()]
    worker["ports"] = [*worker.get("ports", ()), *ports]


def template(settings: Settings, data_layer: DataLayer, pod: Manifest) -> Manifest:
    """The template of executor pods, given that of the workers: the same security profile and placement.

    Executors get the object store's secrets and no others.
    """
    spec = pod["spec"]
    worker = _worker(pod)
    store_settings = json.dumps(data_layer.settings.get("object_store", {}))
    secrets = [secret for secret in data_layer.files if f"{server_settings.FILES_FOLDER}/{secret}/" in store_settings]
    container = {
        "name": CONTAINER,
        **({"securityContext": worker["securityContext"]} if "securityContext" in worker else {}),
        "env": [
            variable
            for variable in pods.secret_variables(data_layer)
            if not variable["name"].startswith(DRIVER_ONLY_PREFIXES)
        ],
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir
            *pods.file_mounts(secrets),
        ],
    }
    copied = ("securityContext", "nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {labels.NAME: "bearlake", labels.COMPONENT: "executor", labels.MANAGED_BY: "spark"}},
        "spec": {
            **{key: spec[key] for key in copied if key in spec},
            "serviceAccountName": settings.service_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}, *pods.file_volumes(secrets)],
        },
    }


def _worker(pod: Manifest) -> Manifest:
    """The worker's main container; `podTemplate` may add sidecars."""
    found: Manifest = next(container for container in pod["spec"]["containers"] if container["name"] == MAIN_CONTAINER)
    return found
