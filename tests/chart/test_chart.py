"""The chart: rendered manifests compared with golden files, refused values, and agreement with the operator's settings."""

import os
import re
import subprocess
import tarfile
import textwrap
from pathlib import Path

import pytest
import yaml

from bearlake_operator import decoder, settings
from fixtures.chart import CHART, GOLDEN, VALUES, objects, render, rendered
from fixtures.kubernetes import REPOSITORY
from fixtures.waiting import WAIT_S

NAMES = sorted(VALUES)


@pytest.mark.parametrize("name", NAMES)
def test_manifests_equal_the_golden_files(helm: str, name: str) -> None:
    found, path = rendered(helm, name, "--skip-tests"), GOLDEN / f"{name}.yaml"
    if os.environ.get("BEARLAKE_WRITE_GOLDEN"):
        path.write_text(found)

    assert found == path.read_text(), "look at it, then: BEARLAKE_WRITE_GOLDEN=1 pytest tests/chart"


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_understands_its_settings(helm: str, name: str) -> None:
    maps = [resource for resource in objects(rendered(helm, name)) if resource["kind"] == "ConfigMap"]
    texts = [config_map["data"]["operator.yaml"] for config_map in maps if "operator.yaml" in config_map["data"]]

    found = decoder.decode(settings.Settings, yaml.safe_load(texts[0]))

    assert found.data_layers
    assert all(layer.admin.secret for layer in found.data_layers.values())


@pytest.mark.parametrize("name", NAMES)
def test_all_pods_are_restricted(helm: str, name: str) -> None:
    found = [
        resource
        for resource in objects(rendered(helm, name))
        if resource["kind"] in ("Deployment", "StatefulSet", "Pod")
    ]

    assert {resource["kind"] for resource in found} >= {"Deployment", "Pod"}
    for resource in found:
        spec = resource["spec"] if resource["kind"] == "Pod" else resource["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"] + spec.get("initContainers", []):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", NAMES)
def test_helm_lint_passes(helm: str, name: str) -> None:
    command = [helm, "lint", "--strict", str(CHART), "-f", str(VALUES[name])]

    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)

    assert done.returncode == 0, done.stdout


def test_a_package_has_the_files_that_templates_read_and_no_generated_files(helm: str, tmp_path: Path) -> None:
    subprocess.run([helm, "package", str(CHART), "-d", str(tmp_path)], capture_output=True, check=True, timeout=WAIT_S)
    (package,) = tmp_path.glob("bearlake-*.tgz")

    with tarfile.open(package) as archive:
        names = {name.removeprefix("bearlake/") for name in archive.getnames()}

    assert {
        "files/streams.yaml",
        "files/test/produce_and_consume.py",
        "files/monitoring/alerts.yaml",
        "examples/stream.yaml",
    } <= names
    assert [name for name in names if "__pycache__" in name] == []


def test_crds_equal_those_of_the_repository_and_are_kept_at_uninstall(helm: str) -> None:
    done = render(helm, "--set", "quickstart.enabled=true")
    crds = {
        resource["metadata"]["name"]: resource
        for resource in objects(done.stdout)
        if resource["kind"] == "CustomResourceDefinition"
    }

    for name in ("streams", "compactors"):
        source = (REPOSITORY / f"crds/{name}.yaml").read_text()
        assert (CHART / f"files/{name}.yaml").read_text() == source, f"cp crds/{name}.yaml charts/bearlake/files/"
        found = crds[f"{name}.bearlake.dev"]
        assert found["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert found == yaml.safe_load(source)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_new_operator_pod_does_not_wait_for_the_leader(helm: str, replicas: int) -> None:
    found = objects(rendered(helm, "quickstart", "--set", f"operator.replicas={replicas}"))
    (deployment,) = [resource["spec"] for resource in found if resource["kind"] == "Deployment"]
    (container,) = deployment["template"]["spec"]["containers"]

    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert container["readinessProbe"]["httpGet"]["path"] == "/livez"


def test_helm_test_has_a_stream_and_a_pod_for_each_data_layer(helm: str) -> None:
    found = [
        resource
        for resource in objects(rendered(helm, "two-layers"))
        if "helm.sh/hook" in resource["metadata"].get("annotations", {})
    ]

    assert sorted((resource["kind"], resource["metadata"]["name"]) for resource in found) == [
        ("Pod", "lake-archive-test"),
        ("Pod", "lake-default-test"),
        ("Stream", "lake-archive-test"),
        ("Stream", "lake-default-test"),
    ]
    for pod in (resource["spec"] for resource in found if resource["kind"] == "Pod"):
        assert pod["activeDeadlineSeconds"] > 0
        assert pod["automountServiceAccountToken"] is False


def test_helm_test_logs_in_as_the_user_of_a_secret(helm: str) -> None:
    pods = [resource for resource in objects(rendered(helm, "production")) if resource["kind"] == "Pod"]
    variables = pods[0]["spec"]["containers"][0]["env"]

    assert {found["name"]: found["valueFrom"]["secretKeyRef"] for found in variables} == {
        "TEST_USER": {"name": "bearlake-admin-user", "key": "username"},
        "TEST_PASSWORD": {"name": "bearlake-admin-user", "key": "password"},
    }


def test_helm_test_creates_its_stream_in_a_namespace_that_the_operator_watches(helm: str) -> None:
    streams = [resource for resource in objects(rendered(helm, "namespaced")) if resource["kind"] == "Stream"]

    assert [stream["metadata"]["namespace"] for stream in streams] == ["team-a"]


def test_helm_test_uses_the_protocol_and_port_of_the_values(helm: str) -> None:
    def address(*values: str) -> list[str]:
        pods = [
            resource for resource in objects(rendered(helm, "every-tier-value", *values)) if resource["kind"] == "Pod"
        ]
        return list(pods[0]["spec"]["containers"][0]["args"][1:3])

    assert address() == ["rest", "bearlake-default-rest.bearlake.svc:8082"]
    assert address("--set", "test.protocol=kafka") == ["kafka", "bearlake-default-kafka.bearlake.svc:9192"]


def test_a_release_can_be_limited_to_its_namespaces(helm: str) -> None:
    found = objects(rendered(helm, "own-account"))

    assert {resource["kind"] for resource in found if resource["kind"].startswith("Cluster")} == set()
    assert {resource["metadata"]["namespace"] for resource in found if "namespace" in resource["metadata"]} == {
        "team-a"
    }
    assert "lake-servers" not in {resource["metadata"]["name"] for resource in found}


def test_service_accounts_that_access_the_bucket_have_the_cloud_role(helm: str) -> None:
    found = objects(rendered(helm, "every-tier-value"))
    accounts = {resource["metadata"]["name"]: resource for resource in found if resource["kind"] == "ServiceAccount"}

    roles = {
        name: resource["metadata"].get("annotations", {}).get("eks.amazonaws.com/role-arn")
        for name, resource in accounts.items()
    }
    role = "arn:aws:iam::111122223333:role/lake"
    assert roles == {"lake-servers": role, "lake-spark": role, "lake-operator": None}


def test_notes_show_the_examples(helm: str) -> None:
    command = [helm, "install", "lake", str(CHART), "-n", "ns", "--dry-run=client", "--set", "quickstart.enabled=true"]
    notes = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S).stdout.partition("\nNOTES:\n")[2]

    heredoc = notes.partition("<<'END'\n")[2].partition("\nEND\n")[0]
    assert [resource["kind"] for resource in objects(heredoc)] == ["Stream", "Compactor"]
    for name in ("stream", "compactor"):
        assert (CHART / f"examples/{name}.yaml").read_text().strip() in heredoc
    assert "helm test lake -n ns" in notes
    assert "deploy/bearlake-default-kafka" in notes


def test_docs_show_the_examples() -> None:
    shown = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs/kubernetes.md").read_text(), re.DOTALL)
    examples = "\0".join(path.read_text() for path in (CHART / "examples").glob("*.yaml"))

    assert shown
    assert [text for text in shown if text not in examples] == []


def test_values_in_the_docs_are_accepted(helm: str, tmp_path: Path) -> None:
    """Blocks of the page that begin with a value of the chart, applied unchanged on top of the quickstart's values."""
    text = (REPOSITORY / "docs/kubernetes.md").read_text()
    blocks = re.findall(
        r"^    (?:metricsApi|dataLayers|operator):.*\n(?:     .*\n|    dataLayers:\n)+", text, re.MULTILINE
    )

    assert len(blocks) == 8
    for block in blocks:
        (tmp_path / "values.yaml").write_text(textwrap.dedent(block))
        done = render(helm, "--set", "quickstart.enabled=true", "-f", str(tmp_path / "values.yaml"))
        assert done.returncode == 0, f"{block}\n{done.stderr}"
