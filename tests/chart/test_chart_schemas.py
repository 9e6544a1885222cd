"""Validates the manifests of the chart and the operator against the schemas of Kubernetes' API, from the oldest supported version to the
newest known one, and users' manifests against the schemas of our own resources. Unknown fields are refused, as by the API server.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from fixtures.chart import CHART, VALUES, objects, rendered
from fixtures.kubernetes import REPOSITORY

OLDEST = re.search(r'kubeVersion: ">=(\d+\.\d+)', (CHART / "Chart.yaml").read_text())
VERSIONS = [OLDEST[1] if OLDEST else "", kubernetes_validate.latest_version()]
OWN = ("streams", "compactors")
OPERATOR_GOLDEN = sorted((REPOSITORY / "tests/operator/golden").glob("*.yaml"))
FOREIGN = {"monitoring.coreos.com/v1", "keda.sh/v1alpha1"}
"""Resources of other projects, for which Kubernetes has no schemas."""


def strict(schema: Any) -> Any:
    """Return a resource definition's schema as JSON Schema: unknown fields are errors, as in the API server's strict mode."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    is_closed = "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("type") == "object" and is_closed and isinstance(schema["properties"], dict):
        found.setdefault("additionalProperties", False)
    return found


def own_schemas() -> dict[str, Any]:
    """By kind."""
    found = {}
    for name in OWN:
        definition = yaml.safe_load((REPOSITORY / f"crds/{name}.yaml").read_text())["spec"]
        schema = strict(definition["versions"][0]["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        found[definition["names"]["kind"]] = schema
    return found


def check(resource: dict[str, Any], version: str) -> None:
    """Raises `ValidationError` if the API server would refuse the manifest."""
    if resource["apiVersion"] == "bearlake.dev/v1alpha1":
        jsonschema.Draft202012Validator(own_schemas()[resource["kind"]]).validate(resource)
    elif resource["apiVersion"] not in FOREIGN:
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(VALUES))
def test_manifests_of_the_chart_are_valid(helm: str, name: str, version: str) -> None:
    for resource in objects(rendered(helm, name)):
        check(resource, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", OPERATOR_GOLDEN, ids=lambda path: path.stem)
def test_manifests_of_the_operator_are_valid(path: Path, version: str) -> None:
    for resource in objects(path.read_text()):
        check(resource, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OWN)
def test_our_resource_definitions_are_valid(name: str, version: str) -> None:
    kubernetes_validate.validate(yaml.safe_load((REPOSITORY / f"crds/{name}.yaml").read_text()), version, strict=True)


@pytest.mark.parametrize("name", OWN)
def test_every_field_is_explained_and_a_definition_stays_small(name: str) -> None:
    """The output of `kubectl explain`."""
    text = (REPOSITORY / f"crds/{name}.yaml").read_text()
    fields = list(described("", yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))

    assert len(fields) > 40
    assert [path for path, description in fields if not description] == [
        ".metadata"
    ]  # fields that Kubernetes itself describes
    assert len(text) < 100_000


def described(path: str, schema: Any) -> Iterator[tuple[str, str]]:
    for field, of_it in schema.get("properties", {}).items():
        yield f"{path}.{field}", of_it.get("description", "")
        yield from described(f"{path}.{field}", of_it)
    if "items" in schema:
        yield from described(f"{path}[]", schema["items"])


@pytest.mark.parametrize("path", sorted(CHART.glob("examples/*.yaml")), ids=lambda path: path.stem)
def test_examples_are_valid(path: Path) -> None:
    if path.stem.endswith("-values"):
        assert path in VALUES.values()
        return
    found = objects(path.read_text())

    assert found
    for resource in found:
        assert resource["apiVersion"] == "bearlake.dev/v1alpha1"
        check(resource, VERSIONS[-1])


def test_wrong_manifests_are_refused() -> None:
    stream = {"apiVersion": "bearlake.dev/v1alpha1", "kind": "Stream", "metadata": {"name": "s"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}

    for wrong in (
        {**stream, "spec": {"partition": 1}},
        {**stream, "spec": {"protocols": ["amqp"]}},
        {**stream, "spec": {"retention": {"time": "7 days"}}},
        {**stream},
        {**service, "spec": {"ports": [{"prot": 1}]}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            check(wrong, VERSIONS[0])
