"""From the chart's values to what the cluster gets: each value of a tier, through the settings document, in the operator's manifests."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from bearlake_operator import document, settings
from bearlake_operator.manifests import tier
from fixtures.chart import objects, rendered

Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def found(helm: str) -> settings.Settings:
    """The operator's settings for `values/every-tier-value.yaml`."""
    (text,) = [
        one["data"]["operator.yaml"]
        for one in objects(rendered(helm, "every-tier-value"))
        if one["kind"] == "ConfigMap" and "operator.yaml" in one["data"]
    ]
    return document.read(settings.Settings, yaml.safe_load(text))


def made(found: settings.Settings, protocol: str) -> Objects:
    return {(one["kind"], one["metadata"]["name"]): one for one in tier.objects(found, "default", protocol)}


@pytest.fixture(scope="module")
def kafka(found: settings.Settings) -> Objects:
    return made(found, "kafka")


@pytest.fixture(scope="module")
def pod(kafka: Objects) -> dict[str, Any]:
    template: dict[str, Any] = kafka["Deployment", "bearlake-default-kafka"]["spec"]["template"]
    return template


def test_everything_is_what_kubernetes_takes(kafka: Objects) -> None:
    for one in kafka.values():
        kubernetes_validate.validate(one, "1.30", strict=True)


def test_autoscaling(kafka: Objects) -> None:
    spec = kafka["HorizontalPodAutoscaler", "bearlake-default-kafka"]["spec"]

    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 12)
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    assert spec["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 15
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 600
    assert "replicas" not in kafka["Deployment", "bearlake-default-kafka"]["spec"]


def test_ports_and_listeners(kafka: Objects, pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    nodes = kafka["Service", "bearlake-default-kafka-nodes"]["spec"]
    cloud = kafka["Service", "bearlake-default-kafka-cloud"]

    assert ports.items() >= {"kafka": 9192, "nodes": 9094, "cloud": 9095}.items()
    assert (nodes["type"], nodes["ports"][0]["nodePort"]) == ("NodePort", 30094)
    assert cloud["spec"]["type"] == "LoadBalancer"
    assert cloud["metadata"]["annotations"] == {"service.beta.kubernetes.io/aws-load-balancer-type": "external"}
    assert "lake-tls" in [volume.get("secret", {}).get("secretName") for volume in pod["spec"]["volumes"]]
    assert any("lake.example.com" in variable.get("value", "") for variable in container["env"])


def test_resources_settings_and_draining(kafka: Objects, pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    config = yaml.safe_load(kafka["ConfigMap", "bearlake-default-kafka"]["data"]["bearlake.yaml"])

    assert container["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    assert config["kafka"]["idle_ms"] == 300_000
    assert config["server"]["drain_ms"] == 90_000
    assert pod["spec"]["terminationGracePeriodSeconds"] > 90


def test_placement(pod: dict[str, Any]) -> None:
    spec = pod["spec"]

    assert spec["nodeSelector"] == {"pool": "lake"}
    assert spec["tolerations"] == [{"key": "lake", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["affinity"] == {"podAntiAffinity": {}}
    assert spec["priorityClassName"] == "lake-servers"
    assert {one["topologyKey"] for one in spec["topologySpreadConstraints"]} == {
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    }


def test_disruptions_and_network(kafka: Objects) -> None:
    policy = kafka["NetworkPolicy", "bearlake-default-kafka"]["spec"]
    ports = {one["port"] for rule in policy["ingress"] for one in rule["ports"]}

    assert kafka["PodDisruptionBudget", "bearlake-default-kafka"]["spec"]["maxUnavailable"] == 2
    assert {9192, 9094, 9095, 9644} <= ports


def test_overrides_of_the_pod(pod: dict[str, Any]) -> None:
    assert pod["metadata"]["annotations"]["example.com/team"] == "lake"
    assert pod["spec"]["dnsConfig"] == {"options": [{"name": "ndots", "value": "2"}]}


def test_what_is_switched_off_is_not_there(found: settings.Settings) -> None:
    rest = made(found, "rest")
    spec = rest["Deployment", "bearlake-default-rest"]["spec"]

    assert spec["replicas"] == 4
    assert "topologySpreadConstraints" not in spec["template"]["spec"]
    assert not {kind for kind, _ in rest} & {"PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler"}
