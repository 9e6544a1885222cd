"""The operator has exactly the permissions that it needs: its requests in the API server's audit log against the chart's rules."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.kubernetes import until
from fixtures.operator_scene import ACCOUNT, NAMESPACE, USER, Scene, condition, scene, stream

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

Right = tuple[str, str, str]
"""API group, resource (with its subresource), verb."""

TIERS = {
    "kafka": {
        "autoscaling": {"minReplicas": 1, "maxReplicas": 3},
        "networkPolicy": True,
        "listeners": [{"name": "EXTERNAL", "type": "nodeport", "port": 9094, "nodePort": 30094}],
    },
    "compactor": {"autoscaling": {"mode": "keda"}},
}


@pytest.mark.parametrize("watched", [(), ("team-a", "team-b")], ids=["cluster-wide", "namespaced"])
def test_the_operator_has_exactly_the_permissions_that_it_uses(tmp_path: Path, watched: tuple[str, ...]) -> None:
    with scene(tmp_path, *watched, tiers=TIERS) as found:
        for kind in ("ScaledObject", "TriggerAuthentication"):
            found.plane.apply(keda(kind))
        found.plane.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
        with found.operator(BEARLAKE_OPERATOR_DEPLOYMENT=ACCOUNT) as operator:
            until("the operator leads", operator.is_ready, 60)
            live(found, watched[0] if watched else "default")
            if watched:
                found.plane.apply(stream("elsewhere"))
                until("everything is listed again", lambda: listings(found) >= 2, 90)
                assert condition(found.streams()["elsewhere"], "Ready") == ("Unknown", "Pending")
            assert operator.stop() == 0, operator.log.read_text()

        asked = found.plane.audited(USER)
        assert [request["requestURI"] for request in asked if request["responseStatus"]["code"] == 403] == []
        granted = rights(yaml.safe_load_all((tmp_path / "access.yaml").read_text()))
        assert used(asked) == granted


def test_the_operator_may_change_no_lease_but_its_own(tmp_path: Path) -> None:
    with scene(tmp_path) as found:

        def may(verb: str, lease: str) -> bool:
            words = ("-n", NAMESPACE, "auth", "can-i", verb, lease, f"--as={USER}")
            return found.plane.kubectl(*words, is_checked=False).split()[-1:] == ["yes"]

        for verb in ("get", "update"):
            assert may(verb, "leases.coordination.k8s.io/bearlake-operator")
            assert not may(verb, "leases.coordination.k8s.io/another")
        assert may("create", "leases.coordination.k8s.io")
        assert not may("list", "leases.coordination.k8s.io")


def test_the_operator_logs_in_by_the_token_of_its_account(tmp_path: Path) -> None:
    """The servers know the keys of the cluster's issuer from a file, and trust the operator's account."""
    with scene(tmp_path, by_account=True) as found:
        found.rotate(found.plane.token(NAMESPACE, ACCOUNT, audience="another"))
        with found.operator() as operator:
            until("the operator leads", operator.is_ready, 60)
            found.plane.apply(stream("by-token", access=[{"principal": "User:alice", "operations": ["Read"]}]))
            refused = ("Unknown", "DataLayerUnavailable")
            until("it is refused", lambda: condition(found.streams()["by-token"], "Synced") == refused, 60)
            assert found.data_layer() == {}

            found.rotate(found.plane.token(NAMESPACE, ACCOUNT, audience="bearlake"))
            until("it is made", lambda: found.are_synced(["by-token"]), 90)
            assert operator.stop() == 0, operator.log.read_text()


def live(found: Scene, namespace: str) -> None:
    """Make the operator perform all of its operations."""
    rules = [{"principal": "User:alice", "operations": ["Read"]}]
    orders = stream("orders", namespace, deletionPolicy="Delete", access=rules)
    main = {
        "apiVersion": "bearlake.dev/v1alpha1",
        "kind": "Compactor",
        "metadata": {"name": "main", "namespace": namespace},
        "spec": {"autoscaling": {"maxReplicas": 3}},
    }
    found.plane.apply(orders, main)
    until("the stream is made", lambda: found.are_synced(["orders"], namespace), 60)
    until("the Compactor is seen", lambda: seen(found.plane.get("compactor", "main", namespace)), 60)
    for kind, name in (("scaledobject", f"bearlake-compactor-{namespace}-main"), ("hpa", "bearlake-default-kafka")):
        until(f"there is a {kind}", lambda kind=kind, name=name: found.plane.get(kind, name, NAMESPACE), 30)
    assert found.plane.get("deployment", "bearlake-default-kafka", NAMESPACE)["metadata"]["ownerReferences"]

    found.plane.kubectl("-n", namespace, "delete", "stream/orders", "compactor/main", "--timeout=60s")

    kinds = "configmaps,services,deployments,hpa,pdb,networkpolicies,scaledobjects,triggerauthentications"
    ours = ("-n", NAMESPACE, "get", kinds, "-l", "app.kubernetes.io/managed-by=bearlake-operator", "-o", "name")
    until("all is pruned", lambda: not found.plane.kubectl(*ours).strip(), 120)


def seen(resource: dict[str, Any]) -> bool:
    return resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"]


def listings(found: Scene) -> int:
    """The number of full lists since the operator started."""
    asked = found.plane.audited(USER)
    return sum(
        request["verb"] == "list" and request["objectRef"]["resource"] == "triggerauthentications" for request in asked
    )


def used(asked: Iterable[Mapping[str, Any]]) -> set[Right]:
    """The permissions that these requests needed. A patch that created an object needed two."""
    found = set()
    for request in asked:
        if "objectRef" not in request:
            continue  # discovery, which every user may read
        reference = request["objectRef"]
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource", ""))))
        found.add((reference.get("apiGroup", ""), resource, request["verb"]))
        if request["verb"] == "patch" and request["responseStatus"]["code"] == 201:
            found.add((reference.get("apiGroup", ""), resource, "create"))
    return found


def rights(documents: Iterable[Mapping[str, Any]]) -> set[Right]:
    """The permissions that the chart grants to the operator's account in any namespace."""
    everything = [document for document in documents if document]
    roles = {
        (resource["kind"], resource["metadata"]["name"], resource["metadata"].get("namespace", "")): resource["rules"]
        for resource in everything
        if resource["kind"] in ("Role", "ClusterRole")
    }
    found = set()
    for manifest in everything:
        if not manifest["kind"].endswith("Binding") or manifest["subjects"][0]["name"] != ACCOUNT:
            continue
        space = manifest["metadata"].get("namespace", "") if manifest["kind"] == "RoleBinding" else ""
        for rule in roles[manifest["roleRef"]["kind"], manifest["roleRef"]["name"], space]:
            found |= {
                (group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def keda(kind: str) -> dict[str, Any]:
    """A minimal CRD of a KEDA resource."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.keda.sh"},
        "spec": {
            "group": "keda.sh",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
