"""Autoscalers: quick up, slow down, by CPU, by Bearlake's own metrics, or by KEDA.

Every pod that goes makes its clients connect anew, so a tier shrinks by one pod a minute after it has been too large for long; it grows
by half of itself, or two pods, every 15 s. Workers have no clients: they go quicker.
"""

from collections.abc import Mapping, Sequence

from bearlake_operator.api import CompactorScaling
from bearlake_operator.manifests import Manifest, config, labels
from bearlake_operator.settings import AdminAccess, Autoscaling, ScalingMode

REQUESTS_METRIC = "bearlake_requests_per_second"
BYTES_METRIC = "bearlake_bytes_per_second"
BACKLOG_METRIC = "bearlake_compaction_backlog_bytes"
WORKER_DOWN_SECONDS = 300


def of_tier(name: str, scaling: Autoscaling, marks: Mapping[str, str]) -> Manifest:
    """The autoscaler of a tier's Deployment `name`."""
    if scaling.mode is ScalingMode.KEDA:
        trigger = {
            "type": "cpu",
            "metricType": "Utilization",
            "metadata": {"value": str(scaling.target_cpu_percent)},
        }
        behavior = _behavior(scaling.scale_up_seconds, scaling.scale_down_seconds)
        return _scaled_object(name, marks, scaling.min_replicas, scaling.max_replicas, trigger, behavior)
    metrics = [_cpu(scaling.target_cpu_percent)]
    if scaling.mode is ScalingMode.BUILTIN:
        wanted = (
            (REQUESTS_METRIC, scaling.target_requests_per_second),
            (BYTES_METRIC, scaling.target_bytes_per_second),
        )
        metrics += [_per_pod(metric, target) for metric, target in wanted if target]
    return _autoscaler(
        name,
        marks,
        scaling.min_replicas,
        scaling.max_replicas,
        metrics,
        up_seconds=scaling.scale_up_seconds,
        down_seconds=scaling.scale_down_seconds,
    )


def of_compactor(
    name: str,
    scaling: CompactorScaling,
    mode: ScalingMode,
    data_layer: str,
    admin: AdminAccess,
    marks: Mapping[str, str],
) -> list[Manifest]:
    """The autoscaler of a Compactor's Deployment: by backlog with KEDA or Bearlake's own metrics API, else by CPU."""
    if mode is ScalingMode.KEDA:
        return _by_keda(name, scaling, admin, marks)
    metrics = [_cpu(scaling.target_cpu_percent)]
    if mode is ScalingMode.BUILTIN:
        selector = {"matchLabels": {labels.DATA_LAYER: data_layer}}
        target = {"type": "AverageValue", "averageValue": str(scaling.target_backlog_bytes)}
        metrics = [
            {
                "type": "External",
                "external": {"metric": {"name": BACKLOG_METRIC, "selector": selector}, "target": target},
            }
        ]
    found = _autoscaler(
        name,
        marks,
        scaling.min_replicas,
        scaling.max_replicas,
        metrics,
        up_seconds=0,
        down_seconds=WORKER_DOWN_SECONDS,
    )
    return [found]


def _by_keda(name: str, scaling: CompactorScaling, admin: AdminAccess, marks: Mapping[str, str]) -> list[Manifest]:
    """KEDA asks the workers' own admin API for the backlog, with its token."""
    authentication = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": {"secretTargetRef": [{"parameter": "token", "name": admin.secret, "key": admin.key}]},
    }
    trigger = {
        "type": "metrics-api",
        "metadata": {
            "url": f"http://{name}:{config.ADMIN_PORT}/v1/compaction/backlog?limit=1",
            "valueLocation": "size_bytes",
            "targetValue": str(scaling.target_backlog_bytes),
            "authMode": "bearer",
        },
        "authenticationRef": {"name": name},
    }
    behavior = _behavior(0, WORKER_DOWN_SECONDS)
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
    name: str,
    marks: Mapping[str, str],
    least: int,
    most: int,
    metrics: Sequence[Manifest],
    *,
    up_seconds: int,
    down_seconds: int,
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
            "behavior": _behavior(up_seconds, down_seconds),
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
