"""All objects of a Compactor: ConfigMap, Deployment, Service of the workers' admin API, NetworkPolicy and autoscaler."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bearlake_operator.api import CompactorSpec
from bearlake_operator.manifests import Manifest, labels, pods, scaling, server_settings, spark
from bearlake_operator.manifests.deployment import deployment
from bearlake_operator.manifests.network_policy import network_policy
from bearlake_operator.settings import COMPACTOR, ScalingMode, Settings

PATTERN_COUNT_MAX = 28
"""Patterns that fit into a request line. With more patterns, the autoscaler uses the backlog of all streams."""


def objects(
    settings: Settings, spec: CompactorSpec, *, namespace: str, replicas: int, streams: Sequence[str] = ()
) -> list[Manifest]:
    """The desired objects, without owner, in the operator's `namespace`. Raises `Invalid`.

    `replicas` is the current number of workers, unless there is autoscaling. `streams` are patterns of stream names; empty means all.
    """
    data_layer = settings.data_layers[spec.data_layer]
    values = data_layer.tier(COMPACTOR)
    tier = replace(
        values,
        resources=spec.resources or values.resources,
        settings=server_settings.merged(values.settings, _settings(settings, spec, streams)),
        priority_class_name=spec.priority_class_name or values.priority_class_name,
        pod_template=server_settings.merged(values.pod_template, spec.pod_template),
    )
    name = labels.compactor_name(spec.namespace, spec.name)
    selector_labels = labels.compactor_selector(spec.data_layer, name)
    content = server_settings.document(data_layer, COMPACTOR, tier)
    template = pods.template(
        settings,
        data_layer,
        COMPACTOR,
        tier,
        selector_labels=selector_labels,
        config_map_name=name,
        settings_hash=server_settings.settings_hash(content),
        service_account=spark.service_account(settings, spec),
    )
    measured = streams if len(streams) <= PATTERN_COUNT_MAX else ()
    if measured:
        template["metadata"]["annotations"][labels.STREAMS] = json.dumps(list(measured))
    more_files = {}
    if spark.runs_executor_pods(spec):
        spark.configure_driver(template)
        more_files[spark.TEMPLATE] = spark.template(settings, data_layer, template)
    found = [
        server_settings.config_map(name, content, selector_labels, more_files),
        deployment(name, selector_labels, template, replicas=None if spec.autoscaling else replicas),
        _service(name, selector_labels, data_layer.admin.scheme),
    ]
    if settings.network_policies.enabled and values.network_policy:
        driver_ports = list(spark.PORTS.values()) if spark.runs_executor_pods(spec) else []
        is_keda = spec.autoscaling and values.autoscaling and values.autoscaling.mode is ScalingMode.KEDA
        policy = network_policy(
            name,
            selector_labels,
            settings.network_policies,
            executor_ports=driver_ports,
            admin_from=settings.network_policies.keda_from if is_keda else [],
        )
        found.append(policy)
    if spec.autoscaling is not None:
        host = f"{name}.{namespace}.svc"
        found += scaling.for_compactor(
            name, host, spec.autoscaling, values.autoscaling, data_layer.admin, selector_labels, measured
        )
    return found


def _settings(settings: Settings, spec: CompactorSpec, streams: Sequence[str]) -> dict[str, Any]:
    """The settings of the workers that follow from the Compactor's spec."""
    spark_settings: Manifest = {"master": spec.spark_master} if spec.spark_master else {}
    if spec.spark_conf:
        spark_settings["conf"] = [f"{key}={value}" for key, value in sorted(spec.spark_conf.items())]
    if kubernetes := spark.kubernetes_settings(settings, spec):
        spark_settings["kubernetes"] = kubernetes
    compaction: Manifest = {"streams": list(streams)} if streams else {}
    if spec.priorities:
        compaction["priorities"] = [{"streams": pattern, "priority": priority} for pattern, priority in spec.priorities]
    return {key: value for key, value in (("spark", spark_settings), ("compaction", compaction)) if value}


def _service(name: str, selector_labels: Mapping[str, str], scheme: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "spec": {
            "selector": dict(selector_labels),
            "ports": [
                {"name": "admin", "port": server_settings.ADMIN_PORT, "targetPort": "admin", "appProtocol": scheme}
            ],
        },
    }
