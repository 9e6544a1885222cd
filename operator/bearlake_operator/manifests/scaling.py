"""Autoscalers: quick up, slow down, by CPU, by Bearlake's own metrics, or by KEDA.

Every pod that goes makes its clients connect anew, so a tier shrinks by one pod a minute after it has been too large for long; it grows
by half of itself, or two pods, every 15 s. Workers have no clients: they go quicker.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from bearlake_operator.api import CompactorScaling
from bearlake_operator.manifests import Manifest, config, labels
from bearlake_operator.settings import AdminAccess, Autoscaling, ScalingMode

REQUESTS_METRIC = "bearlake_requests_per_second"
BYTES_METRIC = "bearlake_bytes_per_second"
BACKLOG_METRIC = "bearlake_compaction_backlog_bytes"

CPU_PERCENT = 65
DOWN_SECONDS = 900
WORKER_DOWN_SECONDS = 300


def of_tier(name: str, scaling: Autoscaling, marks: Mapping[str, str]) -> Manifest:
    """The autoscaler of a tier's Deployment `name`."""
    percent = scaling.target_cpu_percent or CPU_PERCENT
    behavior = _behavior(scaling.scale_up_seconds, _or(scaling.scale_down_seconds, DOWN_SECONDS))
    if scaling.mode is ScalingMode.KEDA:
        trigger = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": str(percent)}}
        return _scaled_object(name, marks, scaling.min_replicas, scaling.max_replicas, trigger, behavior)
    metrics = []
    if scaling.mode is ScalingMode.CPU or scaling.target_cpu_percent:
        # One metric that is missing would keep the tier from ever shrinking: CPU only where it was asked for.
        metrics.append(_cpu(percent))
    for metric, target in (
        (REQUESTS_METRIC, scaling.target_requests_per_second),
        (BYTES_METRIC, scaling.target_bytes_per_second),
    ):
        if target:
            metrics.append(_per_pod(metric, target))
    return _autoscaler(name, marks, scaling.min_replicas, scaling.max_replicas, metrics, behavior)


def of_compactor(
    name: str,
    host: str,
    scaling: CompactorScaling,
    values: Autoscaling | None,
    admin: AdminAccess,
    marks: Mapping[str, str],
    streams: Sequence[str] = (),
) -> list[Manifest]:
    """The autoscaler of a Compactor's Deployment: by backlog with KEDA or Bearlake's own metrics API, else by CPU.

    `host` is where any worker answers, from everywhere in the cluster: KEDA asks from its own namespace.
    `values` are those of the data layer's tier of workers: where the metric comes from, and how slowly workers go. `streams` are the
    patterns of the streams whose backlog counts; none: all.
    """
    values = values or Autoscaling()
    behavior = _behavior(values.scale_up_seconds, _or(values.scale_down_seconds, WORKER_DOWN_SECONDS))
    if values.mode is ScalingMode.KEDA:
        return _by_keda(name, host, scaling, admin, marks, behavior, streams)
    metric = _cpu(scaling.target_cpu_percent)
    if values.mode is ScalingMode.BUILTIN:
        metric = _backlog(marks, scaling.target_backlog_bytes)
    return [_autoscaler(name, marks, scaling.min_replicas, scaling.max_replicas, [metric], behavior)]


def _by_keda(
    name: str,
    host: str,
    scaling: CompactorScaling,
    admin: AdminAccess,
    marks: Mapping[str, str],
    behavior: Manifest,
    streams: Sequence[str],
) -> list[Manifest]:
    """KEDA asks the workers' own admin API for the backlog, with its token."""
    query = urlencode([("limit", "1"), *(("streams", pattern) for pattern in streams)])
    authentication = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": {"secretTargetRef": [{"parameter": "token", "name": admin.secret, "key": admin.key}]},
    }
    trigger = {
        "type": "metrics-api",
        "metadata": {
            "url": f"http://{host}:{config.ADMIN_PORT}/v1/compaction/backlog?{query}",
            "valueLocation": "size_bytes",
            "targetValue": str(scaling.target_backlog_bytes),
            "authMode": "bearer",
        },
        "authenticationRef": {"name": name},
    }
    scaled = _scaled_object(name, marks, scaling.min_replicas, scaling.max_replicas, trigger, behavior)
    return [authentication, scaled]


def _scaled_object(
    name: str, marks: Mapping[str, str], least: int, most: int, trigger: Manifest, behavior: Manifest
) -> Manifest:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": least,
            "maxReplicaCount": most,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [trigger],
        },
    }


def _autoscaler(
    name: str, marks: Mapping[str, str], least: int, most: int, metrics: Sequence[Manifest], behavior: Manifest
) -> Manifest:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": least,
            "maxReplicas": most,
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


def _backlog(marks: Mapping[str, str], target: int) -> Manifest:
    """What waits for the workers of this Compactor, shared among them."""
    selector = {"matchLabels": {label: marks[label] for label in (labels.DATA_LAYER, labels.COMPACTOR)}}
    metric = {"name": BACKLOG_METRIC, "selector": selector}
    return {
        "type": "External",
        "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": str(target)}},
    }


def _or(seconds: int | None, default: int) -> int:
    return default if seconds is None else seconds
