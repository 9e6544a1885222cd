"""TLS of the admin API as the chart renders it, and as the operator gives it to servers: no client is left with plain HTTP."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bearlake.settings.document import load_document
from bearlake_operator import api, settings
from bearlake_operator.manifests import compactor, server_settings, tier
from fixtures.chart import objects, operator_settings, render, rendered

Objects = dict[tuple[str, str], dict[str, Any]]
TLS = {"secret": "lake-tls"}
NAME = "bearlake-admin.bearlake.svc"
ISSUER = "https://issuer.example"


def given(helm: str, folder: Path, layer: Mapping[str, Any], **values: Any) -> Objects:
    """The chart's objects for these values of the data layer, on top of the quickstart's."""
    path = folder / "values.yaml"
    more = {"metricsApi": {"enabled": True}, "monitoring": {"podMonitor": True}}
    path.write_text(yaml.safe_dump({"dataLayers": {"default": layer}, **more, **values}))
    found = objects(rendered(helm, "quickstart", "-f", str(path)))
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def made(found: Objects) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The operator's manifests for it: servers, and workers that KEDA scales."""
    values = operator_settings(found)
    for protocol in settings.PROTOCOLS:
        yield protocol, tier.objects(values, "default", protocol)
    resource = {"metadata": {"namespace": "team-a", "name": "main"}, "spec": {"autoscaling": {"maxReplicas": 3}}}
    parsed = api.compactor_spec(resource)
    yield "compactor", compactor.objects(values, parsed, namespace="bearlake", replicas=1)


def of_kind(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["kind"] == kind]


def mounted(pod: Mapping[str, Any], folder: str) -> dict[str, tuple[str, str]]:
    """The files in a folder of the pod's container, each with its Secret and key."""
    (mount,) = [item for item in pod["containers"][0]["volumeMounts"] if item["mountPath"] == folder]
    (volume,) = [item for item in pod["volumes"] if item["name"] == mount["name"]]
    assert mount["readOnly"]
    sources = volume["projected"]["sources"] if "projected" in volume else [{"secret": volume["secret"]}]
    return {
        item["path"]: (source["secret"].get("name") or source["secret"]["secretName"], item["key"])
        for source in sources
        for item in source["secret"]["items"]
    }


def test_servers_and_workers_have_the_certificate_and_probes_use_it(helm: str, tmp_path: Path) -> None:
    keda = {"compactor": {"autoscaling": {"mode": "keda"}}}
    found = given(helm, tmp_path, {"admin": {"tls": {**TLS, "caSecret": "lake-ca", "caKey": "ca.pem"}}, "tiers": keda})

    for name, items in made(found):
        (deployment,) = of_kind(items, "Deployment")
        kubernetes_validate.validate(deployment, "1.30", strict=True)
        pod = deployment["spec"]["template"]["spec"]
        container = pod["containers"][0]
        assert mounted(pod, server_settings.ADMIN_TLS_FOLDER) == {
            "tls.crt": ("lake-tls", "tls.crt"),
            "tls.key": ("lake-tls", "tls.key"),
            "ca.crt": ("lake-ca", "ca.pem"),
        }
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["scheme"] == "HTTPS", (name, probe)
        variables = {item["name"]: item.get("value") for item in container["env"]}
        assert variables["BEARLAKE_ADMIN"] == "https://localhost:9644"
        ports = [port for service in of_kind(items, "Service") for port in service["spec"]["ports"]]
        assert {port.get("appProtocol") for port in ports if port["name"] == "admin"} <= {"https", None}
        document = tmp_path / "settings.yaml"
        document.write_text(of_kind(items, "ConfigMap")[0]["data"]["bearlake.yaml"])
        admin = load_document(document, {}).settings.admin
        assert (admin.tls_certificate_file, admin.tls_key_file, admin.tls_ca_file, admin.tls_server_name) == (
            "/etc/bearlake/admin-tls/tls.crt",
            "/etc/bearlake/admin-tls/tls.key",
            variables["BEARLAKE_ADMIN_CA_FILE"],
            NAME,
        )
        for scaled in of_kind(items, "ScaledObject"):
            assert scaled["spec"]["triggers"][0]["metadata"]["url"].startswith("https://")


def test_clients_in_the_cluster_know_the_authority_and_not_the_key(helm: str, tmp_path: Path) -> None:
    found = given(helm, tmp_path, {"admin": {"tls": {**TLS, "serverName": "lake.example"}}})

    for name in ("lake-operator", "lake-metrics-api"):
        pod = found["Deployment", name]["spec"]["template"]["spec"]
        assert mounted(pod, "/etc/bearlake/authorities/default") == {"ca.crt": ("lake-tls", "ca.crt")}
        kubernetes_validate.validate(found["Deployment", name], "1.30", strict=True)
    (endpoint,) = found["PodMonitor", "lake-default"]["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": "lake-tls", "key": "ca.crt"}},
        "serverName": "lake.example",
    }
    tls = operator_settings(found).data_layers["default"].admin.tls
    assert tls is not None
    assert tls.server_name == "lake.example"


def test_without_a_secret_nothing_has_tls(helm: str, tmp_path: Path) -> None:
    found = given(helm, tmp_path, {})

    assert operator_settings(found).data_layers["default"].admin.tls is None
    assert "authorit" not in yaml.safe_dump(found["Deployment", "lake-operator"])
    assert "scheme" not in found["PodMonitor", "lake-default"]["spec"]["podMetricsEndpoints"][0]
    for _, items in made(found):
        pod = of_kind(items, "Deployment")[0]["spec"]["template"]["spec"]
        assert "scheme" not in pod["containers"][0]["readinessProbe"]["httpGet"]


@pytest.mark.parametrize("tls", [{}, TLS])
def test_the_token_of_the_account_needs_an_exception_only_without_tls(
    helm: str, tmp_path: Path, tls: Mapping[str, str]
) -> None:
    layer = {"admin": {"tls": tls}, "settings": {"authentication": {"token": {"issuer": ISSUER}}}}
    found = given(helm, tmp_path, layer, operator={"serviceAccountToken": {"issuer": ISSUER}})

    document = operator_settings(found).data_layers["default"].settings
    assert document.get("admin", {}).get("tokens_without_tls", False) == (not tls)
    assert document["access"]["super_users"] == ["User:system:serviceaccount:bearlake:lake-operator"]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"admin": {"tls": {"serverName": "a"}}}, "default.admin.tls.serverName is set, but the admin API has no TLS"),
        ({"admin": {"tls": {"caSecret": "a"}}}, "default.admin.tls.caSecret is set"),
        ({"admin": {"tls": TLS, "url": "http://10.0.0.1:9644"}}, "default.admin.url begins with http://"),
        ({"settings": {"admin": {"tls_certificate_file": "/a"}}}, "settings.admin.tls_certificate_file"),
        (
            {"tiers": {"rest": {"settings": {"admin": {"tls_key_file": "/a"}}}}},
            "tiers.rest.settings.admin.tls_key_file",
        ),
        ({"admin": {"tls": {"files": "a"}}}, "files"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    helm: str, tmp_path: Path, layer: Mapping[str, Any], words: str
) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump({"quickstart": {"enabled": True}, "dataLayers": {"default": layer}}))

    done = render(helm, "-f", str(path))

    assert done.returncode != 0
    assert words in done.stderr
