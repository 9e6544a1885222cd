"""Spark on Kubernetes: the worker's pod is the driver and creates executor pods from the same image.

Spark calls the API server with the pod's ServiceAccount, which needs a Role for pods with create, get, list, watch, delete and
deletecollection. Spark creates nothing else: no ConfigMaps, Services or volume claims. The driver's pod owns the executor pods, so they are
deleted with it. Executors connect to the driver's address, and authenticate with a secret that Spark generates for each start.

A pod template defines the rest of an executor's pod (security context, credentials, volumes).
Source: Spark 4.1, "Running Spark on Kubernetes", client mode.
"""

from collections.abc import Mapping
from pathlib import Path

from bearlake.compaction.spark.settings import SparkSettings
from bearlake.compaction.workbench import MIB
from bearlake.errors import Invalid

SCHEME = "k8s://"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TEMPLATE_CONTAINER = "executor"

_MADE_NOWHERE = {
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
}
"""Keeps the Role free of permissions for resources that we never use."""


def is_kubernetes(settings: SparkSettings) -> bool:
    """Return whether executors run in pods."""
    return settings.master.startswith(SCHEME)


def properties(settings: SparkSettings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return Spark's properties for executors in pods. `environ` has values known only in this pod: `POD_IP`, and its name as `HOSTNAME`.

    Raises:
        Invalid: a setting is missing and cannot be determined here.
    """
    pods = settings.kubernetes
    host = pods.driver_host or environ.get("POD_IP", "")
    if not host:
        raise Invalid(
            "spark.kubernetes.driver_host: not set; expected this pod's address here or in POD_IP, for executors"
        )
    if not pods.image:
        raise Invalid("spark.kubernetes.image: not set; expected the compactor's image, for executor pods")
    found = {
        **_MADE_NOWHERE,
        "spark.authenticate": "true",
        "spark.driver.host": host,
        "spark.driver.bindAddress": pods.bind_address,
        "spark.driver.port": str(pods.driver_port),
        "spark.driver.blockManager.port": str(pods.block_manager_port),
        "spark.kubernetes.namespace": pods.namespace or _own_namespace(),
        "spark.kubernetes.container.image": pods.image,
        "spark.executor.instances": str(pods.executor_count),
        "spark.executor.cores": str(pods.executor_core_count),
        "spark.executor.memory": f"{pods.executor_heap_bytes // MIB}m",
        "spark.executor.memoryOverhead": f"{pods.executor_python_bytes // MIB}m",
    }
    driver_pod = pods.driver_pod or (environ.get("HOSTNAME", "") if "KUBERNETES_SERVICE_HOST" in environ else "")
    if driver_pod:
        found["spark.kubernetes.driver.pod.name"] = driver_pod
    if pods.pod_template_file:
        found["spark.kubernetes.executor.podTemplateFile"] = pods.pod_template_file
        found["spark.kubernetes.executor.podTemplateContainerName"] = TEMPLATE_CONTAINER
    return found


def _own_namespace() -> str:
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Invalid(
            "spark.kubernetes.namespace: not set, and this process does not run in a pod with a ServiceAccount token"
        ) from error
