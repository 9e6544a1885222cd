"""The console's tier: off by default, a Service and a NetworkPolicy of its own, no token and no store, settings that the server takes."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from bearlake.serving.console.routes import check_exposure
from bearlake.settings.document import load_document
from fixtures.chart import VALUES, objects, render, rendered


def of_console(text: str) -> dict[str, dict[str, Any]]:
    """The console's objects by their kind."""
    found = [found for found in objects(text) if found["metadata"]["name"] == "bearlake-default-console"]
    return {resource["kind"]: resource for resource in found}


@pytest.fixture(scope="module")
def console(helm: str) -> dict[str, dict[str, Any]]:
    return of_console(rendered(helm, "console"))


def test_by_default_there_is_no_console(helm: str) -> None:
    assert of_console(rendered(helm, "every-tier-value")) == {}


def test_it_is_a_deployment_a_service_a_policy_and_its_settings(console: dict[str, dict[str, Any]]) -> None:
    assert set(console) == {"ConfigMap", "Deployment", "NetworkPolicy", "Service"}
    for resource in console.values():
        kubernetes_validate.validate(resource, "1.30", strict=True)
    (container,) = console["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "console"
    assert "env" not in container
    assert console["Deployment"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert console["Service"]["spec"]["ports"][0]["port"] == 9700


def test_the_servers_policy_lets_its_pods_in_and_its_own_lets_it_reach_nothing_else(
    console: dict[str, dict[str, Any]],
) -> None:
    pods = console["Deployment"]["spec"]["template"]["metadata"]["labels"]
    policy = console["NetworkPolicy"]["spec"]
    layer = {"app.kubernetes.io/name": "bearlake", "bearlake.dev/data-layer": "default"}

    assert layer.items() <= pods.items()
    assert policy["ingress"] == [{"ports": [{"port": 9700, "protocol": "TCP"}]}]
    assert policy["egress"][1:] == [
        {"to": [{"podSelector": {"matchLabels": layer}}]},
        {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 5432, "protocol": "TCP"}]},
    ]


def test_its_settings_name_the_services_of_the_servers(console: dict[str, dict[str, Any]], tmp_path: Any) -> None:
    file = tmp_path / "bearlake.yaml"
    file.write_text(console["ConfigMap"]["data"]["bearlake.yaml"])
    settings = load_document(file, {}, {}, {}).settings.console
    urls = {api: getattr(settings, f"{api}_url") for api in ("admin", "rest", "registry", "pulsar", "catalog")}

    assert urls == {
        "admin": "http://bearlake-default-rest:9644",
        "rest": "http://bearlake-default-rest:9082",
        "registry": "http://bearlake-default-rest:8081",
        "pulsar": "http://bearlake-default-pulsar:8080",
        "catalog": "http://bearlake-default-catalog:8181",
    }
    assert settings.tls_certificate_file == "/etc/bearlake/tls/tls.crt"
    assert settings.host_names == ("console.example.com",)
    check_exposure(settings.host, urls)


def test_the_operator_does_not_learn_of_it(helm: str) -> None:
    documents = [found for found in objects(rendered(helm, "console")) if "operator.yaml" in (found.get("data") or {})]
    (found,) = [yaml.safe_load(document["data"]["operator.yaml"]) for document in documents]

    assert "console" not in found["dataLayers"]["default"]["tiers"]


def test_before_an_admin_api_with_tls_it_needs_an_address_in_the_certificate(helm: str) -> None:
    words = ("--set", "dataLayers.default.admin.tls.secret=admin-tls", "-f", str(VALUES["console"]))
    refused = render(helm, *words)
    address = "dataLayers.default.tiers.console.settings.console.admin_url=https://bearlake-admin.bearlake.svc:9644"

    assert refused.returncode != 0
    assert "settings.console.admin_url" in refused.stderr
    assert render(helm, *words, "--set", address).returncode == 0
