"""From the chart's values to the cluster: each value of a tier, through the settings document, in the operator's manifests,
and from there to what servers read."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bearlake.settings.document import Settings, load_document
from bearlake_operator import api, decoder, settings
from bearlake_operator.manifests import compactor, tier
from bearlake_operator.reconcile import required_tiers
from fixtures.chart import VALUES, objects, rendered

Objects = dict[tuple[str, str], dict[str, Any]]


def of_values(helm: str, name: str) -> settings.Settings:
    """The operator's settings for a set of values."""
    (text,) = [
        resource["data"]["operator.yaml"]
        for resource in objects(rendered(helm, name))
        if resource["kind"] == "ConfigMap" and "operator.yaml" in resource["data"]
    ]
    return decoder.decode(settings.Settings, yaml.safe_load(text))


@pytest.fixture(scope="module")
def found(helm: str) -> settings.Settings:
    return of_values(helm, "every-tier-value")


def made(found: settings.Settings, protocol: str) -> Objects:
    return {
        (resource["kind"], resource["metadata"]["name"]): resource
        for resource in tier.objects(found, "default", protocol)
    }


@pytest.fixture(scope="module")
def kafka(found: settings.Settings) -> Objects:
    return made(found, "kafka")


@pytest.fixture(scope="module")
def pod(kafka: Objects) -> dict[str, Any]:
    template: dict[str, Any] = kafka["Deployment", "bearlake-default-kafka"]["spec"]["template"]
    return template


def test_every_manifest_matches_kubernetes_schemas(kafka: Objects) -> None:
    for resource in kafka.values():
        kubernetes_validate.validate(resource, "1.30", strict=True)


def test_autoscaling(kafka: Objects) -> None:
    spec = kafka["HorizontalPodAutoscaler", "bearlake-default-kafka"]["spec"]

    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 12)
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    assert spec["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 15
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 600
    assert "replicas" not in kafka["Deployment", "bearlake-default-kafka"]["spec"]


def test_ports_and_listeners(kafka: Objects, pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
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
    assert {constraint["topologyKey"] for constraint in spec["topologySpreadConstraints"]} == {
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    }


def test_disruptions_and_network(kafka: Objects) -> None:
    policy = kafka["NetworkPolicy", "bearlake-default-kafka"]["spec"]
    ports = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}

    assert kafka["PodDisruptionBudget", "bearlake-default-kafka"]["spec"]["maxUnavailable"] == 2
    assert {9192, 9094, 9095, 9644} <= ports


def test_the_catalog_runs_only_where_it_is_enabled(helm: str, found: settings.Settings) -> None:
    assert required_tiers.required_tiers(found, ()) == {"default": ("catalog",)}
    assert required_tiers.required_tiers(of_values(helm, "production"), ()) == {"default": ()}


def test_the_catalog_has_a_service_a_network_policy_and_a_listener_outside(found: settings.Settings) -> None:
    made_ = made(found, "catalog")
    service = made_["Service", "bearlake-default-catalog"]["spec"]
    nodes = made_["Service", "bearlake-default-catalog-nodes"]["spec"]
    policy = made_["NetworkPolicy", "bearlake-default-catalog"]["spec"]
    container = made_["Deployment", "bearlake-default-catalog"]["spec"]["template"]["spec"]["containers"][0]

    assert {"name": "catalog", "port": 8181, "targetPort": "catalog", "appProtocol": "http"} in service["ports"]
    assert nodes["ports"] == [{"name": "nodes", "port": 8181, "targetPort": "catalog", "nodePort": 30181}]
    assert 8181 in {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert container["args"][:2] == ["serve", "catalog"]
    for resource in made_.values():
        kubernetes_validate.validate(resource, "1.30", strict=True)


def test_overrides_of_the_pod(pod: dict[str, Any]) -> None:
    assert pod["metadata"]["annotations"]["example.com/team"] == "lake"
    assert pod["spec"]["dnsConfig"] == {"options": [{"name": "ndots", "value": "2"}]}


def test_disabled_parts_are_not_rendered(found: settings.Settings) -> None:
    rest = made(found, "rest")
    spec = rest["Deployment", "bearlake-default-rest"]["spec"]

    assert spec["replicas"] == 4
    assert "topologySpreadConstraints" not in spec["template"]["spec"]
    assert not {kind for kind, _ in rest} & {"PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler"}


SECRETS = {
    "BEARLAKE_METADATA__URL": "postgresql://lake@db/lake",
    "BEARLAKE_TABLES__CATALOG_URL": "https://catalog.example.com/iceberg",
}


def as_servers_read(manifests: list[dict[str, Any]], folder: Path) -> Settings:
    """The settings that a pod's process reads from its ConfigMap and variables."""
    (config,) = [manifest["data"]["bearlake.yaml"] for manifest in manifests if manifest["kind"] == "ConfigMap"]
    (template,) = [resource["spec"]["template"]["spec"] for resource in manifests if resource["kind"] == "Deployment"]
    of_pod = {"POD_IP": "10.0.0.7", "NODE_IP": "192.0.2.1"}
    environ = {**SECRETS, **of_pod}
    for variable in template["containers"][0]["env"]:
        if variable["name"] not in environ:
            value = variable.get("value", "of-the-pod")
            environ[variable["name"]] = value.replace("$(POD_IP)", "10.0.0.7").replace("$(NODE_IP)", "192.0.2.1")
    (folder / "bearlake.yaml").write_text(config)
    return load_document(folder / "bearlake.yaml", environ).settings


@pytest.mark.parametrize("name", sorted(VALUES))
def test_servers_and_workers_understand_their_settings(helm: str, name: str, tmp_path: Path) -> None:
    values = of_values(helm, name)

    for layer in values.data_layers:
        for name_of_tier in settings.SERVER_TIERS:
            read = as_servers_read(tier.objects(values, layer, name_of_tier), tmp_path)
            assert read.object_store.url
            assert getattr(read.listeners, name_of_tier).advertised_host == "10.0.0.7"
        resource = {"metadata": {"namespace": "n", "name": "main"}, "spec": {"dataLayer": layer}}
        assert as_servers_read(
            compactor.objects(values, api.compactor_spec(resource), namespace="bearlake", replicas=1), tmp_path
        )


def test_servers_open_the_listeners_of_the_values(found: settings.Settings, tmp_path: Path) -> None:
    nodes, cloud = as_servers_read(tier.objects(found, "default", "kafka"), tmp_path).listeners.kafka_more

    assert (nodes.name, nodes.port, nodes.advertised_host, nodes.advertised_port) == ("NODES", 9094, "192.0.2.1", 30094)
    assert (cloud.name, cloud.port, cloud.advertised_host) == ("CLOUD", 9095, "lake.example.com")
    assert cloud.tls_certificate_file == "/etc/bearlake/tls/cloud/tls.crt"
