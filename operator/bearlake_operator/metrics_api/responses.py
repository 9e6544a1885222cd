"""Response bodies of the two APIs: discovery, metric values, and errors.

Discovery has two forms: one document per group and version for older clients, and one aggregated document (KEP-3352).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bearlake_operator.manifests.scaling import BACKLOG_METRIC, BYTES_METRIC, REQUESTS_METRIC
from bearlake_operator.metrics_api.rates import Rate

Body = dict[str, Any]

EMPTY_OPENAPI_V2: Body = {"swagger": "2.0", "info": {"title": "Bearlake's metrics", "version": "v1"}, "paths": {}}
EMPTY_OPENAPI_V3: Body = {"paths": {}}
"""`/openapi/v2` and `/openapi/v3` without schemas. They must exist, because the aggregator retries a 404 forever."""
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Api:
    """One of the two APIs. `prefix` precedes a metric's name in its resource list."""

    group: str
    version: str
    kind: str
    prefix: str
    metrics: tuple[str, ...]

    @property
    def group_version(self) -> str:
        """Group and version, such as `custom.metrics.k8s.io/v1beta2`."""
        return f"{self.group}/{self.version}"


CUSTOM = Api("custom.metrics.k8s.io", "v1beta2", "MetricValueList", "pods/", (REQUESTS_METRIC, BYTES_METRIC))
EXTERNAL = Api("external.metrics.k8s.io", "v1beta1", "ExternalMetricValueList", "", (BACKLOG_METRIC,))
APIS = (CUSTOM, EXTERNAL)


def groups() -> Body:
    """The body of `/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(api) for api in APIS]}


def group(api: Api) -> Body:
    """The body of `/apis/GROUP`."""
    version = {"groupVersion": api.group_version, "version": api.version}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": api.group,
        "versions": [version],
        "preferredVersion": version,
    }


def resources(api: Api) -> Body:
    """The body of `/apis/GROUP/VERSION`."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api.group_version,
        "resources": [
            {
                "name": f"{api.prefix}{metric}",
                "singularName": "",
                "namespaced": True,
                "kind": api.kind,
                "verbs": ["get"],
            }
            for metric in api.metrics
        ],
    }


def aggregated_discovery() -> Body:
    """The body of `/apis` for the content type `AGGREGATED`."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": api.group},
                "versions": [{"version": api.version, "freshness": "Current", "resources": _discovered(api)}],
            }
            for api in APIS
        ],
    }


def _discovered(api: Api) -> list[Body]:
    kind = {"group": api.group, "version": api.version, "kind": api.kind}
    if api.prefix:  # metrics are subresources of pods
        subresources = [{"subresource": metric, "responseKind": kind, "verbs": ["get"]} for metric in api.metrics]
        pods = {
            "resource": "pods",
            "scope": "Namespaced",
            "singularResource": "pod",
            "verbs": [],
            "subresources": subresources,
        }
        return [pods]
    return [
        {"resource": metric, "responseKind": kind, "scope": "Namespaced", "singularResource": "", "verbs": ["get"]}
        for metric in api.metrics
    ]


def pod_values(namespace: str, metric: str, rates: Mapping[str, Rate]) -> Body:
    """The values of a metric of pods, by pod name."""
    items = [
        {
            "describedObject": {"kind": "Pod", "namespace": namespace, "name": name, "apiVersion": "v1"},
            "metric": {"name": metric, "selector": None},
            "timestamp": _time(rate.time),
            "windowSeconds": round(rate.window_s),
            "value": quantity(rate.value),
        }
        for name, rate in sorted(rates.items())
    ]
    return {"kind": CUSTOM.kind, "apiVersion": CUSTOM.group_version, "metadata": {}, "items": items}


def external_values(metric: str, values: Sequence[tuple[Mapping[str, str], float, datetime]]) -> Body:
    """The values of a metric without a Kubernetes object, each with its labels and time."""
    items = [
        {"metricName": metric, "metricLabels": dict(labels), "timestamp": _time(time), "value": quantity(value)}
        for labels, value, time in values
    ]
    return {"kind": EXTERNAL.kind, "apiVersion": EXTERNAL.group_version, "metadata": {}, "items": items}


def failure(code: int, reason: str, message: str) -> Body:
    """An error as a `Status` object. Source: Kubernetes API conventions, "Response Status Kind"."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def quantity(value: float) -> str:
    """A number as a Kubernetes quantity: an integer, or thousandths with the suffix `m`."""
    thousandths = round(value * 1000)
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def _time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
