"""The complete desired state of some scenarios against golden files, and rules that hold in all of them."""

import importlib.util
from pathlib import Path

import pytest
import yaml

from bearlake_operator.errors import Invalid
from bearlake_operator.manifests import Manifest, labels, server_settings, tier
from bearlake_operator.settings import ListenerType, Tier, TierListener

_spec = importlib.util.spec_from_file_location("operator_rendering", Path(__file__).parent / "rendering.py")
assert _spec is not None
assert _spec.loader is not None
rendering = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rendering)

SCENARIOS = list(rendering.SCENARIOS)


def test_servers_advertise_the_host_of_the_load_balancer():
    def advertised(balancers, **more):
        listener = TierListener(name="OUT", type=ListenerType.LOAD_BALANCER, port=9095, **more)
        values = rendering.with_tier("kafka", Tier(listeners=(listener,)))
        found = tier.objects(values, "default", "kafka", balancers)
        (container,) = only(found, "Deployment")["spec"]["template"]["spec"]["containers"]
        variables = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        return yaml.safe_load(variables["BEARLAKE_LISTENERS__KAFKA_MORE"])[0]["advertised_host"]

    got = {"bearlake-default-kafka-out": "lb.example.com"}

    assert advertised({}) == "$(POD_IP)"
    assert advertised(got) == "lb.example.com"
    assert advertised(got, advertised_host="kafka.example.com") == "kafka.example.com"


def only(objects: list[Manifest], kind: str) -> Manifest:
    found = [item for item in objects if item["kind"] == kind]
    assert len(found) == 1
    return found[0]


def pod_of(scenario: str) -> Manifest:
    template: Manifest = only(rendering.SCENARIOS[scenario](), "Deployment")["spec"]["template"]
    return template


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_manifests_match_the_golden_files(scenario):
    expected = (rendering.GOLDEN / f"{scenario}.yaml").read_text()

    assert rendering.render(scenario) == expected, "look at it, then: python tests/operator/rendering.py"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_objects_have_our_label_and_a_valid_name(scenario):
    for item in rendering.SCENARIOS[scenario]():
        assert item["metadata"]["labels"][labels.MANAGED_BY] == labels.OPERATOR
        assert len(item["metadata"]["name"]) <= 63


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pods_have_the_restricted_profile(scenario):
    """The rules of the Pod Security Standards' profile `restricted`."""
    spec = pod_of(scenario)["spec"]
    (container,) = spec["containers"]

    assert spec["automountServiceAccountToken"] is (scenario == "compactor-spark")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_replicas_are_set_only_without_an_autoscaler(scenario):
    objects = rendering.SCENARIOS[scenario]()
    has_autoscaler = any(item["kind"] in ("HorizontalPodAutoscaler", "ScaledObject") for item in objects)

    assert ("replicas" in only(objects, "Deployment")["spec"]) is not has_autoscaler


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_grace_period_is_longer_than_draining(scenario):
    objects = rendering.SCENARIOS[scenario]()
    document = rendering.yaml.safe_load(only(objects, "ConfigMap")["data"][server_settings.FILE])

    grace_ms = only(objects, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] * 1000
    assert grace_ms > document["server"]["drain_ms"] > document["server"]["drain_notice_ms"]


def test_pods_roll_exactly_when_their_settings_change():
    def mark(values):
        item = only(rendering.tier.objects(values, "default", "kafka"), "Deployment")
        return item["spec"]["template"]["metadata"]["annotations"][labels.SETTINGS_HASH]

    tier = rendering.example().data_layers["default"].tiers["kafka"]
    before = mark(rendering.example())

    assert mark(rendering.with_tier("rest", rendering.Tier(settings={"rest": {}}))) == before
    assert mark(rendering.with_tier("kafka", rendering.replace(tier, replicas=7))) == before
    assert mark(rendering.with_tier("kafka", rendering.replace(tier, settings={"kafka": {}}))) != before


def test_shortened_names_stay_unique():
    names = {labels.compactor_name("n" * 63, "c" * 100 + str(number)) for number in range(100)}

    assert len(names) == 100
    assert max(map(len, names)) == labels.NAME_LENGTH_MAX


def test_tier_settings_override_those_of_the_data_layer_key_by_key():
    assert server_settings.merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"c": 3}, "d": [2]}) == {
        "a": {"b": 1, "c": 3},
        "d": [2],
    }


def test_executors_have_the_workers_profile_and_are_not_selected_as_workers():
    objects = rendering.SCENARIOS["compactor-spark"]()
    worker, selector = pod_of("compactor-spark"), only(objects, "Deployment")["spec"]["selector"]["matchLabels"]

    executor = rendering.yaml.safe_load(only(objects, "ConfigMap")["data"]["executor.yaml"])

    (container,) = executor["spec"]["containers"]
    (of_worker,) = worker["spec"]["containers"]
    assert executor["spec"]["serviceAccountName"] == rendering.example().service_account
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert executor["spec"]["securityContext"] == worker["spec"]["securityContext"]
    assert container["securityContext"] == of_worker["securityContext"]
    assert [variable["name"] for variable in container["env"]] == ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    assert all(variable in of_worker["env"] for variable in container["env"])
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
    assert not selector.items() <= executor["metadata"]["labels"].items()
    assert executor["metadata"]["labels"][labels.MANAGED_BY] != labels.OPERATOR


def test_executors_mount_only_the_object_stores_files():
    values = rendering.example()
    keys = "/etc/bearlake/secrets/lake-keys/credentials"
    layer = rendering.replace(
        values.data_layers["default"],
        files=("bearlake-database", "lake-keys"),
        settings={"object_store": {"url": "s3://lake", "cloud": {"credentials_file": keys}}},
    )
    values = rendering.replace(values, data_layers={"default": layer}, spark_service_account="bearlake-spark")
    objects = rendering.of_compactor(values, spark={"master": "k8s://https://kubernetes.default.svc"})

    executor = rendering.yaml.safe_load(only(objects, "ConfigMap")["data"]["executor.yaml"])["spec"]

    assert [volume["secret"]["secretName"] for volume in executor["volumes"] if "secret" in volume] == ["lake-keys"]
    (container,) = executor["containers"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp", "/etc/bearlake/secrets/lake-keys"]


def test_sidecars_are_not_configured_as_drivers():
    values = rendering.replace(rendering.example(), spark_service_account="bearlake-spark")
    beside = [{"name": "sidecar", "image": "s"}, {"name": "bearlake", "image": "b"}]
    objects = rendering.of_compactor(
        values,
        spark={"master": "k8s://https://kubernetes.default.svc"},
        podTemplate={"spec": {"containers": beside}},
    )

    sidecar, worker = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]

    assert sidecar == {"name": "sidecar", "image": "s"}
    assert [variable["name"] for variable in worker["env"]] == ["BEARLAKE_SPARK__KUBERNETES__DRIVER_POD"]


def test_executor_pods_need_spark_on_kubernetes_enabled():
    with pytest.raises(Invalid, match=r"^spark\.master: .* sparkOnKubernetes\.enabled"):
        rendering.of_compactor(rendering.example(), spark={"master": "k8s://https://kubernetes.default.svc"})


def test_file_secrets_are_mounted_into_every_pod():
    for scenario in ("kafka", "compactor"):
        spec = pod_of(scenario)["spec"]
        (container,) = spec["containers"]
        (mount,) = [
            volume_mount
            for volume_mount in container["volumeMounts"]
            if volume_mount["mountPath"].startswith("/etc/bearlake/secrets/")
        ]
        assert mount["mountPath"] == "/etc/bearlake/secrets/bearlake-database"
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == mount["name"]]
        assert volume["secret"] == {"secretName": "bearlake-database"}
