"""Prometheus gets a token that reads only metrics: the chart creates it, servers know it, and no PodMonitor has the admin token."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bearlake.settings.document import load_document
from bearlake_operator import api, settings
from bearlake_operator.manifests import compactor, tier
from fixtures.chart import VALUES, objects, operator_settings, render, rendered

Objects = dict[tuple[str, str], dict[str, Any]]


def given(helm: str, folder: Path, admin: Mapping[str, Any]) -> Objects:
    """The chart's objects for these values of the admin API."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump({"dataLayers": {"default": {"admin": admin}}, "monitoring": {"podMonitor": True}}))
    found = objects(rendered(helm, "quickstart", "-f", str(path)))
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def credentials(found: Objects) -> dict[str, str]:
    """The Secret and key that Prometheus sends to servers and workers."""
    (endpoint,) = found["PodMonitor", "lake-default"]["spec"]["podMetricsEndpoints"]
    named: dict[str, str] = endpoint["authorization"]["credentials"]
    return named


def test_the_chart_creates_a_token_for_metrics_besides_the_admin_token(helm: str, tmp_path: Path) -> None:
    found = given(helm, tmp_path, {})

    assert credentials(found) == {"name": "lake-default-metrics", "key": "token"}
    drawn = render(helm, "--set", "crds.install=false", "-f", str(VALUES["quickstart"])).stdout
    named = {item["metadata"]["name"]: item for item in objects(drawn) if item["kind"] == "Secret"}
    secrets = [named[f"lake-default-{name}"] for name in ("admin", "metrics")]
    tokens = {base64.b64decode(secret["data"]["token"]) for secret in secrets}
    assert len(tokens) == 2
    assert all(len(token) == 40 for token in tokens)
    assert {secret["metadata"]["annotations"]["helm.sh/resource-policy"] for secret in secrets} == {"keep"}


def test_no_monitor_names_the_admin_token(helm: str, tmp_path: Path) -> None:
    found = given(helm, tmp_path, {"secret": "own-admin", "metrics": {"secret": "own-metrics", "key": "read"}})

    assert credentials(found) == {"name": "own-metrics", "key": "read"}
    assert not [name for kind, name in found if kind == "Secret" and name.startswith("lake-default")]
    monitors = [item for (kind, _), item in found.items() if kind == "PodMonitor"]
    assert "own-admin" not in yaml.safe_dump(monitors)


def test_servers_and_workers_read_the_token_that_prometheus_sends(helm: str, tmp_path: Path) -> None:
    values = operator_settings(given(helm, tmp_path, {"metrics": {"secret": "own-metrics", "key": "read"}}))
    resource = {"metadata": {"namespace": "team-a", "name": "main"}, "spec": {}}
    workers = compactor.objects(values, api.compactor_spec(resource), namespace="bearlake", replicas=1)

    for items in (workers, *(tier.objects(values, "default", protocol) for protocol in settings.PROTOCOLS)):
        (deployment,) = [item for item in items if item["kind"] == "Deployment"]
        kubernetes_validate.validate(deployment, "1.30", strict=True)
        pod = deployment["spec"]["template"]["spec"]
        (volume,) = [item for item in pod["volumes"] if item["name"] == "metrics"]
        (mount,) = [item for item in pod["containers"][0]["volumeMounts"] if item["name"] == "metrics"]
        (config,) = [item for item in items if item["kind"] == "ConfigMap"]
        (tmp_path / "bearlake.yaml").write_text(config["data"]["bearlake.yaml"])
        admin = load_document(tmp_path / "bearlake.yaml", {}).settings.admin
        assert volume["secret"] == {"secretName": "own-metrics"}
        assert mount["readOnly"]
        assert admin.metrics_token_file == f"{mount['mountPath']}/read"
        assert admin.token_file != admin.metrics_token_file


@pytest.mark.parametrize(
    "admin",
    [{"secret": "own", "metrics": {"secret": "own"}}, {"metrics": {"secret": "lake-default-admin"}}],
    ids=["own", "created"],
)
def test_the_admin_token_is_refused_as_the_token_for_metrics(
    helm: str, tmp_path: Path, admin: Mapping[str, Any]
) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump({"dataLayers": {"default": {"admin": admin}}}))

    refused = render(helm, "-f", str(VALUES["quickstart"]), "-f", str(path))

    assert "dataLayers.default.admin.metrics has the secret and the key of the admin token" in refused.stderr


def test_the_operator_refuses_one_token_for_both() -> None:
    with pytest.raises(ValueError, match="must not be the admin token"):
        settings.AdminAccess(secret="own", metrics=settings.MetricsToken(secret="own"))
