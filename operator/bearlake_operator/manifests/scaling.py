"""Autoscalers: by CPU, by Bearlake's own metrics API, or by KEDA. They scale up fast and down slowly.

A tier grows by half of its pods or by two pods, whichever is more, every 15 s. It shrinks by one pod a minute after a long stabilization
window, because the clients of a deleted pod must reconnect. Workers have no clients, so their window is shorter.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from bearlake_operator.api import CompactorScaling
from bearlake_operator.manifests import Manifest, labels, server_settings
from bearlake_operator.settings import AdminAccess, Autoscaling, ScalingMode

REQUESTS_METRIC = "bearlake_requests_per_second"
BYTES_METRIC = "bearlake_bytes_per_second"
BACKLOG_METRIC = "bearlake_compaction_backlog_bytes"

CPU_PERCENT = 65
DOWN_SECONDS = 900
WORKER_DOWN_SECONDS = 300


def for_tier(name: str, scaling: Autoscaling, selector_labels: Mapping[str, str]) -> Manifest:
    """The autoscaler of a tier's Deployment `name`."""
    percent = scaling.target_cpu_percent or CPU_PERCENT
    behavior = _behavior(scaling.scale_up_seconds, _or_default(scaling.scale_down_seconds, DOWN_SECONDS))
    if scaling.mode is ScalingMode.KEDA:
        trigger = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": str(percent)}}
        return _scaled_object(name, selector_labels, scaling.min_replicas, scaling.max_replicas, trigger, behavior)
    metrics = []
    if scaling.mode is ScalingMode.CPU or scaling.target_cpu_percent:
        # An autoscaler does not scale down while one of its metrics is missing, so CPU is used only if it is configured.
        metrics.append(_cpu(percent))
    for metric, target in (
        (REQUESTS_METRIC, scaling.target_requests_per_second),
        (BYTES_METRIC, scaling.target_bytes_per_second),
    ):
        if target:
            metrics.append(_per_pod(metric, target))
    return _autoscaler(name, selector_labels, scaling.min_replicas, scaling.max_replicas, metrics, behavior)


def for_compactor(
    name: str,
    host: str,
    scaling: CompactorScaling,
    values: Autoscaling | None,
    admin: AdminAccess,
    selector_labels: Mapping[str, str],
    streams: Sequence[str] = (),
) -> list[Manifest]:
    """The autoscaler of a Compactor's Deployment: by backlog with KEDA or Bearlake's own metrics API, else by CPU.

    `host` is the workers' Service with its namespace, because KEDA connects from another namespace. `values` are those of the data
    layer's tier `compactor`: the metric's source and the stabilization windows. `streams` are patterns of the streams whose backlog
    counts; empty means all.
    """
    values = values or Autoscaling()
    behavior = _behavior(values.scale_up_seconds, _or_default(values.scale_down_seconds, WORKER_DOWN_SECONDS))
    if values.mode is ScalingMode.KEDA:
        return _by_keda(name, host, scaling, admin, selector_labels, behavior, streams)
    metric = _cpu(scaling.target_cpu_percent)
    if values.mode is ScalingMode.BUILTIN:
        metric = _backlog(selector_labels, scaling.target_backlog_bytes)
    return [_autoscaler(name, selector_labels, scaling.min_replicas, scaling.max_replicas, [metric], behavior)]


def _by_keda(
    name: str,
    host: str,
    scaling: CompactorScaling,
    admin: AdminAccess,
    selector_labels: Mapping[str, str],
    behavior: Manifest,
    streams: Sequence[str],
) -> list[Manifest]:
    """A ScaledObject with which KEDA reads the backlog from the workers' admin API, and the token for it."""
    query = urlencode([("limit", "1"), *(("streams", pattern) for pattern in streams)])
    authentication = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "spec": {"secretTargetRef": [{"parameter": "token", "name": admin.secret, "key": admin.key}]},
    }
    trigger = {
        "type": "metrics-api",
        "metadata": {
            "url": f"{admin.scheme}://{host}:{server_settings.ADMIN_PORT}/v1/compaction/backlog?{query}",
            "valueLocation": "size_bytes",
            "targetValue": str(scaling.target_backlog_bytes),
            "authMode": "bearer",
        },
        "authenticationRef": {"name": name},
    }
    scaled = _scaled_object(name, selector_labels, scaling.min_replicas, scaling.max_replicas, trigger, behavior)
    return [authentication, scaled]


def _scaled_object(
    name: str,
    selector_labels: Mapping[str, str],
    min_replicas: int,
    max_replicas: int,
    trigger: Manifest,
    behavior: Manifest,
) -> Manifest:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "spec": {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": min_replicas,
            "maxReplicaCount": max_replicas,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [trigger],
        },
    }


def _autoscaler(
    name: str,
    selector_labels: Mapping[str, str],
    min_replicas: int,
    max_replicas: int,
    metrics: Sequence[Manifest],
    behavior: Manifest,
) -> Manifest:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": min_replicas,
            "maxReplicas": max_replicas,
            "metrics": list(metrics),
            "behavior": behavior,
        },
    }


def _behavior(up_seconds: int, down_seconds: int) -> Manifest:
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": up_seconds,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Percent", "value": 50, "periodSeconds": 15},
                {"type": "Pods", "value": 2, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": down_seconds,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
        },
    }


def _cpu(percent: int) -> Manifest:
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    }


def _per_pod(metric: str, target: int) -> Manifest:
    return {
        "type": "Pods",
        "pods": {"metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": str(target)}},
    }


def _backlog(selector_labels: Mapping[str, str], target: int) -> Manifest:
    """The backlog of this Compactor, divided by the number of its workers."""
    selector = {"matchLabels": {label: selector_labels[label] for label in (labels.DATA_LAYER, labels.COMPACTOR)}}
    metric = {"name": BACKLOG_METRIC, "selector": selector}
    return {
        "type": "External",
        "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": str(target)}},
    }


def _or_default(seconds: int | None, default: int) -> int:
    return default if seconds is None else seconds
