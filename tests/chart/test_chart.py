"""The chart: what it renders for some values, against files; what it refuses; and that it says what the operator understands."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from bearlake_operator import document, settings
from fixtures.kubernetes import REPOSITORY, STATE

CHART = REPOSITORY / "charts/bearlake"
VALUES = Path(__file__).parent / "values"
GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in VALUES.glob("*.yaml"))


@pytest.fixture(scope="module")
def helm() -> str:
    found = shutil.which("helm") or str(STATE / "bin/helm")
    if not Path(found).exists():
        pytest.skip("needs helm: on PATH, or made by `tests/kube/cluster/cluster.py build`")
    return found


def render(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [helm, "template", "lake", str(CHART), "--namespace", "bearlake", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def rendered(helm: str, name: str) -> str:
    """The manifests of a set of values, without what is random."""
    done = render(helm, "--skip-crds", "--set", "crds.install=false", "-f", str(VALUES / f"{name}.yaml"))
    assert done.returncode == 0, done.stderr
    text = re.sub(r"^(  (token|password|secret-access-key)): \S+$", r"\1: random", done.stdout, flags=re.MULTILINE)
    return re.sub(r"bearlake:[A-Za-z0-9]{32}@", "bearlake:random@", text)


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


@pytest.mark.parametrize("name", NAMES)
def test_manifests_are_as_written_down(helm: str, name: str) -> None:
    found, path = rendered(helm, name), GOLDEN / f"{name}.yaml"
    if os.environ.get("BEARLAKE_WRITE_GOLDEN"):
        path.write_text(found)

    assert found == path.read_text(), "look at it, then: BEARLAKE_WRITE_GOLDEN=1 pytest tests/chart"


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_understands_its_settings(helm: str, name: str) -> None:
    maps = [one for one in objects(rendered(helm, name)) if one["kind"] == "ConfigMap"]
    texts = [one["data"]["operator.yaml"] for one in maps if "operator.yaml" in one["data"]]

    found = document.read(settings.Settings, yaml.safe_load(texts[0]))

    assert found.data_layers
    assert all(layer.admin.secret for layer in found.data_layers.values())


@pytest.mark.parametrize("name", NAMES)
def test_all_pods_are_restricted(helm: str, name: str) -> None:
    for one in objects(rendered(helm, name)):
        if one["kind"] in ("Deployment", "StatefulSet"):
            spec = one["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            for container in spec["containers"] + spec.get("initContainers", []):
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("quickstart.enabeld=true", "additional properties 'enabeld' not allowed"),
        ("dataLayers.default.tiers.amqp.replicas=1", "additional properties 'amqp' not allowed"),
        ("dataLayers.default.tiers.kafka.replicas=-1", "minimum: got -1, want 0"),
        ("dataLayers.default.admin.secret=x", "object_store.url is not set: name a bucket"),
    ],
)
def test_wrong_values_are_refused_in_words(helm: str, value: str, problem: str) -> None:
    done = render(helm, "--set", value)

    assert done.returncode != 0
    assert problem in done.stderr


def test_lint_has_no_complaint(helm: str) -> None:
    command = [helm, "lint", "--strict", str(CHART), "-f", str(CHART / "examples/quickstart-values.yaml")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout


def test_crds_are_those_of_the_repository_and_stay(helm: str) -> None:
    done = render(helm, "--set", "quickstart.enabled=true")
    crds = {one["metadata"]["name"]: one for one in objects(done.stdout) if one["kind"] == "CustomResourceDefinition"}

    for name in ("streams", "compactors"):
        source = (REPOSITORY / f"crds/{name}.yaml").read_text()
        assert (CHART / f"files/{name}.yaml").read_text() == source, f"cp crds/{name}.yaml charts/bearlake/files/"
        found = crds[f"{name}.bearlake.dev"]
        assert found["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert found == yaml.safe_load(source)


@pytest.mark.parametrize(
    ("form", "path"),
    [
        (settings.Tier, ["dataLayers", "*", "tiers", "kafka"]),
        (settings.Autoscaling, ["dataLayers", "*", "tiers", "kafka", "autoscaling"]),
        (settings.DataLayer, ["dataLayers", "*"]),
        (settings.AdminAccess, ["dataLayers", "*", "admin"]),
    ],
)
def test_values_have_the_names_that_the_operator_knows(form: type, path: list[str]) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    for key in path:
        schema = schema["additionalProperties"] if key == "*" else schema["properties"][key]

    assert set(schema["properties"]) == {document.camel_case(one.name) for one in fields(form)}


def test_alerts_name_metrics_that_exist() -> None:
    metrics = (REPOSITORY / "servers/bearlake/telemetry/metrics.py").read_text()
    metrics += (REPOSITORY / "operator/bearlake_operator/metrics.py").read_text()
    named = set(re.findall(r"\bbearlake_[a-z_]+", (CHART / "templates/monitoring.yaml").read_text()))

    assert named
    assert [name for name in named if f'"{name}"' not in metrics] == []
