"""All objects of a Compactor: workers' settings, their pods, a Service for their admin API, and an autoscaler if it asks for one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bearlake_operator.api import CompactorSpec
from bearlake_operator.manifests import Manifest, config, labels, pods, scaling, spark
from bearlake_operator.manifests.tier import deployment, network_policy
from bearlake_operator.settings import COMPACTOR, Settings

PATTERN_COUNT_MAX = 28
"""Patterns for which an autoscaler is told the backlog of just these streams: a request's line holds no more. Beyond, it is that of all."""


def objects(
    settings: Settings, spec: CompactorSpec, *, namespace: str, replicas: int, streams: Sequence[str] = ()
) -> list[Manifest]:
    """The desired objects, without owner, for the operator's `namespace`. Raises `Invalid`.

    `replicas` is what the schedule says now, if there is no autoscaling; `streams` are the patterns of its streams, none: all.
    """
    data_layer = settings.data_layers[spec.data_layer]
    values = data_layer.tier(COMPACTOR)
    tier = replace(
        values,
        resources=spec.resources or values.resources,
        settings=config.merged(values.settings, _settings(settings, spec, streams)),
        priority_class_name=spec.priority_class_name or values.priority_class_name,
        pod_template=config.merged(values.pod_template, spec.pod_template),
    )
    name = labels.compactor_name(spec.namespace, spec.name)
    marks = labels.compactor_selector(spec.data_layer, name)
    content = config.document(data_layer, COMPACTOR, tier)
    template = pods.template(
        settings,
        data_layer,
        COMPACTOR,
        tier,
        marks=marks,
        config_name=name,
        settings_hash=config.settings_hash(content),
        account=spark.account(settings, spec),
    )
    measured = streams if len(streams) <= PATTERN_COUNT_MAX else ()
    if measured:
        template["metadata"]["annotations"][labels.STREAMS] = json.dumps(list(measured))
    more_files = {}
    if spark.has_pods(spec):
        spark.make_driver(template)
        more_files[spark.TEMPLATE] = spark.template(settings, data_layer, template)
    found = [
        config.config_map(name, content, marks, more_files),
        deployment(name, marks, template, replicas=None if spec.autoscaling else replicas),
        _service(name, marks),
    ]
    if values.network_policy:
        found.append(network_policy(name, marks, list(spark.PORTS.values()) if spark.has_pods(spec) else []))
    if spec.autoscaling is not None:
        host = f"{name}.{namespace}.svc"
        found += scaling.of_compactor(
            name, host, spec.autoscaling, values.autoscaling, data_layer.admin, marks, measured
        )
    return found


def _settings(settings: Settings, spec: CompactorSpec, streams: Sequence[str]) -> dict[str, Any]:
    """What the Compactor says of its workers' settings."""
    of_spark: Manifest = {"master": spec.spark_master} if spec.spark_master else {}
    if spec.spark_conf:
        of_spark["conf"] = [f"{key}={value}" for key, value in sorted(spec.spark_conf.items())]
    if kubernetes := spark.kubernetes_settings(settings, spec):
        of_spark["kubernetes"] = kubernetes
    compaction: Manifest = {"streams": list(streams)} if streams else {}
    if spec.priorities:
        compaction["priorities"] = [{"streams": one, "priority": priority} for one, priority in spec.priorities]
    return {key: value for key, value in (("spark", of_spark), ("compaction", compaction)) if value}


def _service(name: str, marks: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": {
            "selector": dict(marks),
            "ports": [{"name": "admin", "port": config.ADMIN_PORT, "targetPort": "admin", "appProtocol": "http"}],
        },
    }
