"""The chart's values: each has a description and a type; unknown and invalid values are refused before anything is installed."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

import pytest
import yaml

from bearlake_operator import decoder, settings
from bearlake_operator.manifests import labels
from fixtures.chart import CHART, objects, render
from fixtures.waiting import WAIT_S

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
AS_KUBERNETES = {"resources", "tolerations", "affinity", "podTemplate"}
"""Values that are parts of Kubernetes' own objects: no rows for their fields."""

FORMS = {
    "dataLayer": settings.DataLayer,
    "variable": settings.SecretVariable,
    "admin": settings.AdminAccess,
    "adminTls": settings.AdminTls,
    "metricsToken": settings.MetricsToken,
    "tier": settings.Tier,
    "catalog": settings.Tier,
    "workers": settings.Tier,
    "autoscaling": settings.Autoscaling,
    "workersAutoscaling": settings.Autoscaling,
    "listener": settings.TierListener,
}
OF_OTHERS_ALONE = {
    "tier": {"enabled"},
    "workers": {"enabled", "replicas", "port", "listeners", "disruptionBudget", "maxUnavailable"},
    "workersAutoscaling": {
        *("minReplicas", "maxReplicas", "targetCpuPercent", "targetRequestsPerSecond", "targetBytesPerSecond")
    },
}
"""Values that do not apply: Streams ask for the servers of protocols; a Compactor sets the number of workers, which have no clients."""


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def every_schema(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All values with their paths, definitions included where they are used."""
    schema = resolved(schema)
    yield path, schema
    for name, of_it in schema.get("properties", {}).items():
        yield from every_schema(f"{path}.{name}", of_it)
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), Mapping) and resolved(schema[part]).get("properties"):
            yield from every_schema(f"{path}[]", schema[part])


EVERY = dict(every_schema("", SCHEMA))


def test_every_value_is_described_and_typed() -> None:
    assert len(EVERY) > 200
    for path, schema in EVERY.items():
        if path:
            assert schema["description"].endswith((".", ")")), path
            assert schema["type"], path


FREE = {"settings", "spec", "global", "nodeAffinity", "podAffinity", "podAntiAffinity"}
"""Documents with a schema elsewhere: settings of servers, parts of pods, values of other charts."""


def test_unknown_values_are_refused_at_every_depth() -> None:
    for path, schema in EVERY.items():
        if "object" in schema["type"]:
            name = path.rpartition(".")[2]
            assert name in FREE or "additionalProperties" in schema, path
            assert schema.get("additionalProperties") is False or not schema.get("properties"), path


def leaves(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value and resolved(EVERY.get(path, {})).get("properties"):
        for name, of_it in value.items():
            yield from leaves(f"{path}.{name}", of_it)
    else:
        yield path


def test_every_value_has_its_default_in_the_values_file() -> None:
    """Except the values of data layers, of which a release may have any number."""
    listed = {path for path in leaves("", VALUES) if not path.startswith(".dataLayers")}
    inner = tuple(f".{name}." for name in AS_KUBERNETES)

    wanted = {
        path
        for path, schema in EVERY.items()
        if path
        and not schema.get("properties")
        and not path.startswith((".dataLayers", ".global"))
        and "[]" not in path
    }
    wanted = {path for path in wanted if not any(name in path for name in inner)}
    wanted |= {
        path for path in EVERY if path.rpartition(".")[2] in AS_KUBERNETES and not path.startswith(".dataLayers")
    }
    assert listed - {path for path in listed if any(name in path for name in inner)} <= set(EVERY)
    assert {path for path in wanted if not any(key == path or key.startswith(f"{path}.") for key in listed)} == set()


@pytest.mark.parametrize("definition", FORMS)
def test_values_have_the_names_and_defaults_that_the_operator_knows(definition: str) -> None:
    properties = SCHEMA["definitions"][definition]["properties"]
    known = {decoder.camel_case(field.name): field for field in fields(FORMS[definition])}

    assert set(properties) == set(known) - OF_OTHERS_ALONE.get(definition, set())
    for name, schema in properties.items():
        default = known[name].default
        if isinstance(default, Enum):
            default = default.value
        if default not in (MISSING, None, "", ()):
            assert resolved(schema)["default"] == default, name


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("quickstart.enabeld=true", "additional properties 'enabeld' not allowed"),
        ("operator.resources.limit.cpu=1", "additional properties 'limit' not allowed"),
        ("dataLayers.default.tiers.amqp.replicas=1", "additional properties 'amqp' not allowed"),
        ("dataLayers.default.tiers.kafka.replicas=-1", "minimum: got -1, want 0"),
        ("dataLayers.default.tiers.kafka.enabled=true", "additional properties 'enabled' not allowed"),
        ("dataLayers.default.tiers.kafka.tolerations[0].efect=x", "additional properties 'efect' not allowed"),
        (
            "dataLayers.default.tiers.kafka.podTemplate.annotations.a=b",
            "additional properties 'annotations' not allowed",
        ),
        ("dataLayers.default.tiers.compactor.replicas=3", "additional properties 'replicas' not allowed"),
        (
            "dataLayers.default.tiers.compactor.autoscaling.maxReplicas=3",
            "additional properties 'maxReplicas' not allowed",
        ),
        ("dataLayers.default.tiers.kafka.autoscaling.scaleUpSeconds=3601", "maximum: got 3,601, want 3,600"),
        ("dataLayers.default.admin.secret=x", "object_store.url is not set"),
    ],
)
def test_wrong_values_are_refused_with_a_message(helm: str, value: str, problem: str) -> None:
    done = render(helm, "--set", value)

    assert done.returncode != 0
    assert problem in done.stderr


SETTINGS = {"object_store": {"url": "s3://lake"}, "authentication": {"anonymous": True}}


@pytest.mark.parametrize(
    ("layer", "is_said"),
    [
        ({}, False),
        ({"settings": {"authentication": {"token": {"issuer": "https://people.example"}}}}, False),
        ({"settings": {"authentication": {"mechanisms": ["PLAIN"]}}}, True),
        ({"settings": {"authentication": {"anonymous": True}}}, True),
        ({"settings": {"listeners": {"kafka": {"anonymous": True}}}}, True),
        ({"environment": [{"name": "BEARLAKE_AUTHENTICATION__MECHANISMS", "secret": "s", "key": "k"}]}, True),
        ({"tiers": {"kafka": {"settings": {"authentication": {"mechanisms": ["PLAIN"]}}}}}, True),
    ],
)
def test_a_data_layer_says_how_its_clients_log_in(helm: str, layer: dict[str, Any], *, is_said: bool) -> None:
    """Its servers would not start otherwise."""
    settings = {"object_store": {"url": "s3://lake"}, **layer.get("settings", {})}
    done = render(helm, "--set-json", f"dataLayers={json.dumps({'default': {**layer, 'settings': settings}})}")

    assert (done.returncode == 0) == is_said, done.stderr
    assert is_said or "dataLayers.default.settings.authentication does not say how clients log in" in done.stderr


def listener(name: str = "OUT", type_: str = "loadbalancer", port: int = 9094, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "port": port, **more}


@pytest.mark.parametrize(
    ("tier", "of", "problem"),
    [
        (
            "kafka",
            {"autoscaling": {"minReplicas": 11}},
            "autoscaling: minReplicas (11)",
        ),
        ("kafka", {"autoscaling": {"targetBytesPerSecond": 1}}, "targetBytesPerSecond need mode builtin"),
        (
            "kafka",
            {"autoscaling": {"mode": "builtin"}},
            "metricsApi.enabled=true and metricsApi.custom=true",
        ),
        ("compactor", {"autoscaling": {"mode": "builtin"}}, "metricsApi.external=true"),
        (
            "catalog",
            {"autoscaling": {"mode": "builtin", "targetBytesPerSecond": 1}},
            "the catalog counts requests only",
        ),
        ("catalog", {"listeners": [listener("Catalog", port=8181)]}, "listeners: the name Catalog "),
        ("kafka", {"listeners": [listener(), listener("out", port=9095)]}, "listeners: the name out "),
        ("kafka", {"listeners": [listener("Pods")]}, "listeners: the name Pods "),
        ("kafka", {"listeners": [listener("KAFKA")]}, "listeners: the name KAFKA "),
        ("kafka", {"listeners": [listener(port=9092)]}, "the port 9092 of OUT "),
        ("kafka", {"port": 9094, "listeners": [listener()]}, "the port 9094 of OUT "),
        ("pulsar", {"listeners": [listener(), listener("MORE")]}, "the port 9094 of MORE "),
        (
            "kafka",
            {"listeners": [listener(type_="nodeport")]},
            "nodePort of OUT: ",
        ),
        ("rest", {"listeners": [listener(nodePort=30094)]}, "nodePort of OUT"),
        (
            "rest",
            {"listeners": [listener(type_="internal", loadBalancerSourceRanges=["10.0.0.0/8"])]},
            "loadBalancerClass and loadBalancerSourceRanges of OUT: ",
        ),
        ("rest", {"listeners": [listener(tlsSecret="x")]}, "tlsSecret of OUT"),
        ("pulsar", {"listeners": [listener(port=8080, tlsSecret="x")]}, "tlsSecret of OUT"),
    ],
)
def test_values_that_contradict_each_other_are_refused(helm: str, tier: str, of: dict[str, Any], problem: str) -> None:
    layer = {"settings": SETTINGS, "tiers": {tier: of}}

    done = render(helm, "--set-json", f"dataLayers={json.dumps({'default': layer})}")

    assert done.returncode != 0
    assert f"dataLayers.default.tiers.{tier}" in done.stderr
    assert problem in done.stderr


def test_listeners_that_lead_to_one_port_are_not_a_contradiction(helm: str) -> None:
    listeners = [listener("ONE", port=8081), listener("TWO", "nodeport", port=8081, nodePort=30081)]
    tiers = {"rest": {"listeners": listeners}, "pulsar": {"listeners": [listener("HTTP", port=8080)]}}
    layer = {"settings": SETTINGS, "tiers": tiers}

    done = render(helm, "--set-json", f"dataLayers={json.dumps({'default': layer})}")

    assert done.returncode == 0, done.stderr


def test_a_release_may_have_other_data_layers_than_default(helm: str) -> None:
    done = render(
        helm, "--set", "dataLayers.default=null", "--set-json", f"dataLayers.other.settings={json.dumps(SETTINGS)}"
    )
    (document_,) = [resource for resource in objects(done.stdout) if "operator.yaml" in (resource.get("data") or {})]

    assert set(yaml.safe_load(document_["data"]["operator.yaml"])["dataLayers"]) == {"other"}


def test_names_that_are_too_long_are_those_that_the_operator_makes(helm: str) -> None:
    layer = "a-data-layer-of-thirty-two-chars"
    done = render(
        helm, "--set", "dataLayers.default=null", "--set-json", f"dataLayers.{layer}.settings={json.dumps(SETTINGS)}"
    )
    (pod,) = [resource for resource in objects(done.stdout) if resource["kind"] == "Pod"]

    assert len(f"bearlake-{layer}-compactor") > labels.NAME_LENGTH_MAX
    assert pod["spec"]["containers"][0]["args"][2].partition(".")[0] == labels.tier_name(layer, "kafka")


def test_notes_name_the_workers_of_a_namespace_with_a_long_name(helm: str) -> None:
    namespace = "a-rather-long-namespace-name"
    command = [
        helm,
        "install",
        "lake",
        str(CHART),
        "-n",
        namespace,
        "--dry-run=client",
        "--set",
        "quickstart.enabled=true",
    ]

    notes = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S).stdout

    assert f"deploy/{labels.compactor_name(namespace, 'main')} --" in notes
