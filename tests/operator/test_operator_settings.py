"""The operator's settings, and the parsing of resource specs."""

import textwrap
from pathlib import Path

import pytest
import yaml

from bearlake_operator import api, settings
from bearlake_operator.errors import Invalid

OPERATOR = Path(__file__).parents[2] / "operator/bearlake_operator"
CRDS = Path(__file__).parents[2] / "crds"


def loaded(tmp_path, more="", layer=""):
    text = f"""
image: bearlake.test/server:1
compactorImage: bearlake.test/compactor:1
dataLayers:
  default:
    settings: {{}}
    admin: {{secret: token}}
{textwrap.indent(textwrap.dedent(layer), "    ")}
{textwrap.dedent(more)}
"""
    path = tmp_path / "operator.yaml"
    path.write_text(text)
    return settings.load(path)


def test_the_example_is_loaded():
    found = settings.load(OPERATOR / "example.yaml")

    kafka = found.data_layers["default"].tier("kafka")
    assert kafka.autoscaling is not None
    assert kafka.autoscaling.max_replicas == 8
    assert kafka.listeners[0].type is settings.ListenerType.NODE_PORT
    assert found.data_layers["default"].tier("grpc") == settings.Tier()


@pytest.mark.parametrize(
    ("more", "layer", "problem"),
    [
        ("imge: x", "", r"^imge: .*\bimage\b"),
        ("resyncSeconds: soon", "", r"^resyncSeconds: .*integer.*'soon'"),
        ("resyncSeconds: true", "", r"^resyncSeconds: .*integer.*True"),
        ("watchNamespaces: a", "", r"^watchNamespaces: .*list"),
        ("", "environment: [{name: A, secret: b}]", r"^dataLayers\.default\.environment\[0\]\.key: missing$"),
        ("", "tiers: {amqp: {}}", r"^dataLayers\.default: tiers: .*amqp.*kafka, pulsar, rest, grpc, catalog"),
        ("", "tiers: {rest: {enabled: true}}", r"^dataLayers\.default: tiers\.rest\.enabled: allowed for catalog only"),
        (
            "",
            "tiers: {catalog: {autoscaling: {mode: builtin, targetBytesPerSecond: 1}}}",
            r"^dataLayers\.default: tiers\.catalog\.autoscaling: targetBytesPerSecond: the catalog counts requests only",
        ),
        (
            "",
            "tiers: {kafka: {autoscaling: {mode: fast}}}",
            r"^dataLayers\.default\.tiers\.kafka\.autoscaling\.mode: .*cpu, builtin, keda$",
        ),
        (
            "",
            "tiers: {kafka: {autoscaling: {minReplicas: 5, maxReplicas: 2}}}",
            r"^dataLayers\.default\.tiers\.kafka\.autoscaling: minReplicas must be",
        ),
        (
            "",
            "tiers: {kafka: {listeners: [{name: A, type: loadbalancer, port: 1}, {name: a, type: internal, port: 2}]}}",
            r"^dataLayers\.default\.tiers\.kafka: .*unique name",
        ),
        (
            "",
            "tiers: {kafka: {listeners: [{name: A_B, type: internal, port: 1}, {name: a-b, type: internal, port: 2}]}}",
            r"^dataLayers\.default\.tiers\.kafka: .*unique name",
        ),
        (
            "",
            "tiers: {kafka: {listeners: [{name: PODS, type: internal, port: 1}]}}",
            r"^dataLayers\.default\.tiers\.kafka: listeners: .*\bpods\b.*reserved",
        ),
        (
            "",
            "tiers: {kafka: {autoscaling: {scaleDownSeconds: 3601}}}",
            r"^dataLayers\.default\.tiers\.kafka\.autoscaling: scaleDownSeconds .*\b3600\b",
        ),
        (
            "",
            "tiers: {kafka: {listeners: [{name: OUT, type: nodeport, port: 9094}]}}",
            r"^dataLayers\.default\.tiers\.kafka\.listeners\[0\]: nodePort of OUT: ",
        ),
        (
            "",
            "tiers: {kafka: {listeners: [{name: OUT, type: internal, port: 9094, loadBalancerClass: x}]}}",
            r"listeners\[0\]: loadBalancerClass and loadBalancerSourceRanges of OUT: ",
        ),
        (
            "",
            "tiers: {rest: {listeners: [{name: OUT, type: loadbalancer, port: 443, tlsSecret: x}]}}",
            r"^dataLayers\.default: tiers\.rest\.listeners: tlsSecret of OUT: .* settings\.listeners\.rest\.tls_certificate_file",
        ),
    ],
)
def test_errors_name_their_path(tmp_path, more, layer, problem):
    with pytest.raises(Invalid, match=problem):
        loaded(tmp_path, more, layer)


def test_a_file_with_invalid_yaml_is_rejected(tmp_path):
    (tmp_path / "operator.yaml").write_text("image: [")

    with pytest.raises(Invalid):
        settings.load(tmp_path / "operator.yaml")


def stream(**spec):
    return {"metadata": {"namespace": "a", "name": "orders"}, "spec": spec}


def test_an_empty_stream_spec_has_the_defaults_of_the_crd():
    assert api.stream_spec(stream()) == api.StreamSpec(
        name="orders",
        data_layer="default",
        partitions=1,
        protocols=("kafka",),
        configs={},
        is_deleted_with_resource=False,
    )


def test_a_schema_of_a_stream_declares_its_columns():
    schema = [{"name": "id", "type": "long"}, {"name": "two words", "type": "list<decimal(4,1)>"}]

    spec = api.stream_spec(stream(table={"schema": schema}))

    assert spec.configs == {"table.columns": "`id` long, `two words` list<decimal(4,1)>"}


@pytest.mark.parametrize("type_", ["long", "decimal(4, 1)", "struct<`a,>` long, b map<string, list<int>>>", "no type"])
def test_a_type_alone_is_left_to_the_data_layer(type_):
    assert api.stream_spec(stream(table={"schema": [{"name": "id", "type": type_}]})).column_problem == ""


@pytest.mark.parametrize(
    "types",
    [
        ["long, more string"],
        ["list<int>, `more` list<int>"],
        ["struct<x long", "long>"],
        ["long)", "long"],
        ["string, `", "` long"],
        ["struct<`x long>"],
    ],
)
def test_types_that_would_change_other_columns_are_a_problem(types):
    schema = [{"name": f"c{at}", "type": type_} for at, type_ in enumerate(types)]

    problem = api.stream_spec(stream(table={"schema": schema})).column_problem

    assert problem.startswith("spec.table.schema: the type of column 'c0' is not one type")


def test_fields_of_a_stream_become_configs():
    spec = api.stream_spec(
        stream(
            name="shop.orders",
            retention={"time": "36h", "bytes": "50Gi"},
            table={
                "enabled": False,
                "freshness": "30s",
                "namespace": "shop",
                "name": "orders",
                "retention": "unlimited",
                "onDelete": "Drop",
                "values": {"mode": "Elide", "subjects": ["orders", "refunds"], "schemaId": 7},
                "keys": {"mode": "Keep", "schemaId": 8},
                "current": {"enabled": True, "buckets": 64, "envelope": "Debezium", "freshness": "5m"},
            },
            configs={"max.message.bytes": "2000000"},
        )
    )

    assert spec.name == "shop.orders"
    assert spec.configs == {
        "max.message.bytes": "2000000",
        "retention.ms": str(36 * 3_600_000),
        "retention.bytes": str(50 * 1024**3),
        "table.enable": "false",
        "table.freshness_ms": "30000",
        "table.namespace": "shop",
        "table.name": "orders",
        "table.retention_ms": "-1",
        "table.on_delete": "drop",
        "table.value.mode": "elide",
        "table.value.subjects": "orders,refunds",
        "table.value.schema_id": "7",
        "table.key.mode": "keep",
        "table.key.schema_id": "8",
        "table.current": "on",
        "table.current.buckets": "64",
        "table.current.envelope": "debezium",
        "table.current.freshness_ms": "300000",
    }


@pytest.mark.parametrize(("text", "expected"), [("500ms", 500), ("7d", 604_800_000), ("unlimited", -1)])
def test_valid_durations(text, expected):
    assert api.duration_ms(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("10", 10), ("1k", 1000), ("3Mi", 3 << 20), ("2P", 2 * 10**15)])
def test_valid_quantities(text, expected):
    assert api.quantity_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "7", "0s", "-1s", "1 d", "1w", "1.5h", "1h30m"])
def test_invalid_durations(text):
    with pytest.raises(Invalid, match="expected a duration"):
        api.duration_ms(text)


def test_a_compactor_spec_is_parsed():
    spec = api.compactor_spec(
        {
            "metadata": {"namespace": "a", "name": "main"},
            "spec": {
                "autoscaling": {"maxReplicas": 4},
                "schedule": [{"days": ["Sat"], "start": "22:30", "end": "06:00", "replicas": 9}],
            },
        }
    )

    assert spec.autoscaling == api.CompactorScaling(
        min_replicas=1, max_replicas=4, target_backlog_bytes=256 << 20, target_cpu_percent=70
    )
    assert spec.schedule == (api.Window(days=("Sat",), start_minute=1350, end_minute=360, time_zone="UTC", replicas=9),)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ({"metadata": None}, r"^podTemplate\.metadata: expected an object$"),
        ({"metadata": {"annotations": []}}, r"^podTemplate\.metadata\.annotations: expected an object$"),
        ({"spec": "x"}, r"^podTemplate\.spec: expected an object$"),
        (
            {"spec": {"containers": [{"name": "other"}]}},
            r"^podTemplate\.spec\.containers: .*\bbearlake$",
        ),
        ({"spec": {"containers": "x"}}, r"^podTemplate\.spec\.containers: "),
    ],
)
def test_an_invalid_pod_template_is_rejected(template, problem):
    with pytest.raises(Invalid, match=problem):
        api.compactor_spec({"metadata": {"namespace": "a", "name": "main"}, "spec": {"podTemplate": template}})


@pytest.mark.parametrize(
    "names",
    [
        {"*": ["{namespace}.", "dev-{namespace}."]},
        {"*": ["{namespace}."], "ops": ["a.{namespace}."]},
        {"*": ["dev.{namespace}.", "dev.eu.{namespace}_"]},
    ],
)
def test_prefixes_by_which_two_namespaces_may_have_the_same_name_are_rejected(names):
    """`a` could use the names of `dev-a`, or `eu` those that `a` has as `dev.eu.a`."""
    found = {key: tuple(prefixes) for key, prefixes in names.items()}

    with pytest.raises(ValueError, match="neither text may begin with the other"):
        settings.Settings(image="i", compactor_image="i", data_layers={}, stream_names=found)


def test_prefixes_with_different_or_equal_texts_before_the_namespace_are_accepted():
    names = {"*": ("dev.{namespace}.", "prod.{namespace}.", "dev.{namespace}_")}

    found = settings.Settings(image="i", compactor_image="i", data_layers={}, stream_names=names)

    assert found.refused_name("a", "prod.a.orders") == ""


@pytest.mark.parametrize("name", ["streams", "compactors"])
def test_crds_are_small_enough_for_client_side_apply(name):
    path = CRDS / f"{name}.yaml"

    assert yaml.safe_load(path.read_text())["metadata"]["name"] == f"{name}.bearlake.dev"
    assert path.stat().st_size < 100_000
