"""Who reaches which pods and who may do what, as the chart renders it: network policies, the operator's token and rights, stream names."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bearlake.settings.document import load_document
from bearlake.streams.principal import Principal
from bearlake_operator import api
from bearlake_operator.errors import Invalid
from bearlake_operator.manifests import compactor, tier
from fixtures.chart import objects, operator_settings, render, rendered

ISSUER = "https://issuer.example"
Objects = dict[tuple[str, str], dict[str, Any]]

OPERATOR = {
    "app.kubernetes.io/name": "bearlake",
    "app.kubernetes.io/instance": "lake",
    "app.kubernetes.io/component": "operator",
}
METRICS_API = {**OPERATOR, "app.kubernetes.io/component": "metrics-api"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
SERVER = {"app.kubernetes.io/name": "bearlake", "bearlake.dev/data-layer": "default"}


def release(helm: str, folder: Path, **values: Any) -> Objects:
    """The chart's objects for these values on top of the quickstart's."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    found = objects(rendered(helm, "quickstart", "-f", str(path)))
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def servers(found: Objects, protocol: str = "kafka") -> Objects:
    made = tier.objects(operator_settings(found), "default", protocol)
    return {(item["kind"], item["metadata"]["name"]): item for item in made}


def workers(found: Objects, **spec: Any) -> Objects:
    resource = {"metadata": {"namespace": "team-a", "name": "main"}, "spec": spec}
    parsed = api.compactor_spec(resource)
    made = compactor.objects(operator_settings(found), parsed, namespace="bearlake", replicas=1)
    return {(item["kind"], item["metadata"]["name"]): item for item in made}


def policy_of(found: Objects, name: str) -> dict[str, Any]:
    policy = found["NetworkPolicy", name]
    kubernetes_validate.validate(policy, "1.30", strict=True)
    spec: dict[str, Any] = policy["spec"]
    return spec


def reaches(
    policy: dict[str, Any], port: int | str, labels: dict[str, str], *, is_near: bool = True, namespace: str = "shop"
) -> bool:
    """Whether a pod with these labels reaches the port. Source: NetworkPolicy (v1).

    `is_near`: it runs in the namespace of the release; otherwise in `namespace`.
    """
    named = {"kubernetes.io/metadata.name": namespace}
    for rule in policy.get("ingress", ()):
        if port not in [opened["port"] for opened in rule["ports"]]:
            continue
        if "from" not in rule:
            return True
        for peer in rule["from"]:
            wanted = peer["podSelector"]["matchLabels"]
            if "namespaceSelector" in peer:
                is_selected = peer["namespaceSelector"].get("matchLabels", {}).items() <= named.items()
            else:
                is_selected = is_near
            if wanted.items() <= labels.items() and is_selected:
                return True
    return False


# Network policies.


def test_everybody_reaches_the_protocol_and_few_the_admin_api(helm: str, tmp_path: Path) -> None:
    policy = policy_of(servers(release(helm, tmp_path)), "bearlake-default-kafka")

    assert reaches(policy, 9092, {}, is_near=False)
    for labels in (OPERATOR, SERVER, PROMETHEUS):
        assert reaches(policy, 9644, labels)
    assert reaches(policy, 9644, PROMETHEUS, is_near=False)
    for labels in (OPERATOR, SERVER, {"app": "shop"}):
        assert not reaches(policy, 9644, labels, is_near=False)
    assert not reaches(policy, 9644, {"app": "shop"})
    assert not reaches(policy, 9644, {**SERVER, "bearlake.dev/data-layer": "other"})
    assert (policy["policyTypes"], "egress" in policy) == (["Ingress"], False)


def test_workers_are_reached_by_the_operator_their_executors_and_keda_where_they_are_needed(
    helm: str, tmp_path: Path
) -> None:
    keda = {"app.kubernetes.io/name": "keda-operator"}
    executor = {"app.kubernetes.io/name": "bearlake", "app.kubernetes.io/component": "executor"}
    name = "bearlake-compactor-team-a-main"
    plain = release(helm, tmp_path, sparkOnKubernetes={"enabled": True})
    policy = policy_of(workers(plain), name)
    assert reaches(policy, 9644, OPERATOR)
    assert not reaches(policy, 9644, keda, is_near=False)
    assert not reaches(policy, 7078, executor)

    spark = policy_of(workers(plain, spark={"master": "k8s://https://kubernetes.default.svc"}), name)
    assert reaches(spark, 7078, executor)
    assert not reaches(spark, 7078, {"app": "shop"})

    layers = {"default": {"tiers": {"compactor": {"autoscaling": {"mode": "keda"}}}}}
    scaled = release(helm, tmp_path, dataLayers=layers)
    policy = policy_of(workers(scaled, autoscaling={"maxReplicas": 3}), name)
    assert reaches(policy, 9644, keda, is_near=False, namespace="keda")
    assert not reaches(policy, 9644, keda, is_near=False, namespace="shop"), "whoever makes a pod chooses its labels"
    elsewhere = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "scaling"}},
        "podSelector": {"matchLabels": keda},
    }
    moved = release(helm, tmp_path, dataLayers=layers, networkPolicies={"keda": [elsewhere]})
    policy = policy_of(workers(moved, autoscaling={"maxReplicas": 3}), name)
    assert reaches(policy, 9644, keda, is_near=False, namespace="scaling")
    assert not reaches(policy, 9644, keda, is_near=False, namespace="keda")


def test_the_metrics_api_reaches_pods_if_it_is_installed(helm: str, tmp_path: Path) -> None:
    found = release(helm, tmp_path, metricsApi={"enabled": True})

    assert reaches(policy_of(servers(found), "bearlake-default-kafka"), 9644, METRICS_API)
    own = policy_of(found, "lake-metrics-api")
    assert own["podSelector"]["matchLabels"] == METRICS_API
    assert reaches(own, "https", {}, is_near=False)
    assert reaches(own, "http", PROMETHEUS, is_near=False)
    assert not reaches(own, "http", {"app": "shop"})


def test_only_prometheus_reaches_the_operator(helm: str, tmp_path: Path) -> None:
    policy = policy_of(release(helm, tmp_path), "lake-operator")

    assert policy["podSelector"]["matchLabels"] == OPERATOR
    assert reaches(policy, "http", PROMETHEUS, is_near=False)
    assert not reaches(policy, "http", {"app": "shop"})
    assert "Egress" not in policy["policyTypes"]


def test_without_metrics_no_pod_reaches_the_operator(helm: str, tmp_path: Path) -> None:
    found = release(helm, tmp_path, networkPolicies={"monitoring": []})

    policy = policy_of(found, "lake-operator")
    assert policy["policyTypes"] == ["Ingress"]
    assert "ingress" not in policy
    assert reaches(policy_of(servers(found), "bearlake-default-kafka"), 9644, OPERATOR)


def test_configured_egress_has_dns_and_the_own_pods_beside_it(helm: str, tmp_path: Path) -> None:
    stores = {"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}]}
    found = release(helm, tmp_path, networkPolicies={"egress": [stores]})

    policy = policy_of(servers(found), "bearlake-default-kafka")

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert stores in policy["egress"]
    assert {"to": [{"podSelector": {"matchLabels": SERVER}}]} in policy["egress"]
    assert {53} == {port["port"] for rule in policy["egress"] for port in rule.get("ports", ())}

    moved = release(helm, tmp_path, networkPolicies={"egress": [stores], "dnsPorts": [5353]})
    policy = policy_of(servers(moved), "bearlake-default-kafka")
    opened = [port for rule in policy["egress"] for port in rule.get("ports", ())]
    assert opened == [{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}]


def test_policies_can_be_turned_off_as_a_whole_and_by_tier(helm: str, tmp_path: Path) -> None:
    off = release(helm, tmp_path, networkPolicies={"enabled": False}, metricsApi={"enabled": True})
    layers = {"default": {"tiers": {"kafka": {"networkPolicy": False}}}}
    partly = servers(release(helm, tmp_path, dataLayers=layers))

    for made in (off, servers(off), workers(off), partly):
        assert {kind for kind, _ in made} & {"NetworkPolicy"} == set()


# The operator's token.


def tokens(found: Objects, component: str = "operator") -> dict[str, Any]:
    """The volume with the admin token of the default data layer."""
    pod = found["Deployment", f"lake-{component}"]["spec"]["template"]["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "token-default"]
    return {key: value for key, value in volume.items() if key != "name"}


def trusting(**more: Any) -> dict[str, Any]:
    token = {"issuer": ISSUER, "keys_file": "/etc/bearlake/secrets/issuer/jwks.json"}
    server_settings = {"authentication": {"token": token}, **more}
    return {
        "operator": {"serviceAccountToken": {"issuer": ISSUER}},
        "dataLayers": {"default": {"settings": server_settings}},
    }


def test_the_operator_uses_the_secret_unless_an_issuer_is_configured(helm: str, tmp_path: Path) -> None:
    found = release(helm, tmp_path)

    assert tokens(found) == {"secret": {"secretName": "lake-default-admin"}}
    assert "access" not in operator_settings(found).data_layers["default"].settings


def test_the_operator_uses_a_short_token_that_servers_of_the_issuer_admit(helm: str, tmp_path: Path) -> None:
    found = release(helm, tmp_path, **trusting(access={"super_users": ["User:root"]}))

    (source,) = tokens(found)["projected"]["sources"]
    assert source["serviceAccountToken"] == {"audience": "bearlake", "expirationSeconds": 600, "path": "token"}
    account = found["Deployment", "lake-operator"]["spec"]["template"]["spec"]["serviceAccountName"]
    text = servers(found)["ConfigMap", "bearlake-default-kafka"]["data"]["bearlake.yaml"]
    (tmp_path / "bearlake.yaml").write_text(text)
    read = load_document(tmp_path / "bearlake.yaml", {}).settings
    assert read.authentication.token.issuer == ISSUER
    assert read.authentication.token.audience == "bearlake"
    assert read.authentication.mechanisms == []
    assert read.admin.tokens_without_tls
    assert read.access.is_super_user(Principal("User", f"system:serviceaccount:bearlake:{account}"))
    assert read.access.is_super_user(Principal("User", "root"))
    assert not read.access.is_super_user(Principal("User", "system:serviceaccount:bearlake:default"))


def test_the_audience_is_that_of_the_servers_settings(helm: str, tmp_path: Path) -> None:
    values = trusting()
    values["dataLayers"]["default"]["settings"]["authentication"]["token"]["audience"] = "lake.example.com"
    found = release(helm, tmp_path, **values)

    (source,) = tokens(found)["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "lake.example.com"


def test_a_data_layer_with_another_issuer_keeps_the_secret(helm: str, tmp_path: Path) -> None:
    values = trusting()
    other = {"authentication": {"token": {"issuer": "https://people.example", "audience": "bearlake"}}}
    values["dataLayers"]["second"] = {"settings": other}
    found = release(helm, tmp_path, **values)

    pod = found["Deployment", "lake-operator"]["spec"]["template"]["spec"]
    (second,) = [volume for volume in pod["volumes"] if volume["name"] == "token-second"]
    assert second["secret"] == {"secretName": "lake-second-admin"}
    assert operator_settings(found).data_layers["second"].settings["authentication"] == {
        **other["authentication"],
        "anonymous": True,
    }
    assert "admin" not in operator_settings(found).data_layers["second"].settings


@pytest.mark.parametrize(
    ("server_settings", "problem"),
    [
        ({}, "no data layer trusts it"),
        ({"authentication": {"token": {"issuer": ISSUER, "user_claim": "email"}}}, "have their name in sub"),
    ],
)
def test_settings_under_which_the_token_would_be_refused_are_refused(
    helm: str, tmp_path: Path, server_settings: dict[str, Any], problem: str
) -> None:
    values = {**trusting(), "dataLayers": {"default": {"settings": server_settings}}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))

    done = render(helm, "--set", "quickstart.enabled=true", "-f", str(tmp_path / "values.yaml"))

    assert done.returncode != 0
    assert problem in done.stderr


@pytest.mark.parametrize(
    "own",
    [
        {"access": {"super_users": []}},
        {"admin": {"tokens_without_tls": False}},
        {"authentication": {"token": {"issuer": "https://people.example"}}},
        {"authentication": {"token": {"audience": "people"}}},
    ],
    ids=lambda own: next(iter(own)),
)
def test_settings_of_a_tier_that_would_lock_the_operator_out_are_refused(
    helm: str, tmp_path: Path, own: dict[str, Any]
) -> None:
    values = trusting()
    values["dataLayers"]["default"]["tiers"] = {"kafka": {"settings": own}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))

    done = render(helm, "--set", "quickstart.enabled=true", "-f", str(tmp_path / "values.yaml"))

    assert done.returncode != 0
    assert "dataLayers.default.tiers.kafka.settings." in done.stderr
    assert "Set dataLayers.default.settings." in done.stderr


def test_other_settings_of_a_tier_are_possible_with_the_operators_token(helm: str, tmp_path: Path) -> None:
    values = trusting()
    own = {"access": {"allow_if_no_rule": False}, "authentication": {"mechanisms": ["PLAIN"]}}
    values["dataLayers"]["default"]["tiers"] = {"kafka": {"settings": own}}
    found = operator_settings(release(helm, tmp_path, **values))

    assert found.data_layers["default"].tiers["kafka"].settings == own


# Rights and names.


def test_the_rules_of_a_namespace_are_limited(helm: str, tmp_path: Path) -> None:
    assert operator_settings(release(helm, tmp_path)).access_rule_count_max == 1000
    assert operator_settings(release(helm, tmp_path, operator={"accessRuleCountMax": 50})).access_rule_count_max == 50


def test_rules_are_reserved_for_administrators(helm: str, tmp_path: Path) -> None:
    assert operator_settings(release(helm, tmp_path)).access_rule_total_count_max == 8000
    given = operator_settings(release(helm, tmp_path, operator={"accessRuleTotalCountMax": 9000}))
    assert given.access_rule_total_count_max == 9000


def test_the_operator_changes_its_own_lease_and_no_other(helm: str, tmp_path: Path) -> None:
    rules = release(helm, tmp_path)["Role", "lake-operator"]["rules"]
    leases = [rule for rule in rules if "leases" in rule["resources"]]

    unlimited = {verb for rule in leases if "resourceNames" not in rule for verb in rule["verbs"]}
    assert unlimited == {"create"}, "which Kubernetes cannot limit to a name"
    assert [rule["resourceNames"] for rule in leases if "resourceNames" in rule] == [["bearlake-operator"]]


def test_names_of_streams_are_bound_to_namespaces(helm: str, tmp_path: Path) -> None:
    names = {"*": ["{namespace}.", "shared."], "platform": [""]}
    found = operator_settings(release(helm, tmp_path, operator={"streamNames": names}))

    for namespace, name in (("team", "team.orders"), ("team", "shared.orders"), ("platform", "anything")):
        assert found.refused_name(namespace, name) == ""
    for namespace, name in (("team", "team-b.orders"), ("team", "orders"), ("team", "platform.orders")):
        assert "team. or shared." in found.refused_name(namespace, name)
    assert operator_settings(release(helm, tmp_path)).refused_name("team", "anything") == ""


def test_a_prefix_that_would_include_another_namespace_is_refused(helm: str, tmp_path: Path) -> None:
    for prefix in ("{namespace}", "{namespace}-", "x.{namespace}x."):
        with pytest.raises(Invalid, match="followed by"):
            operator_settings(release(helm, tmp_path, operator={"streamNames": {"*": [prefix]}}))
