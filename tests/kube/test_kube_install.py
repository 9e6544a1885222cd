"""Installs the chart on a real cluster, uses every protocol from outside and inside, and changes resources; without changes, the operator
writes nothing.

`make test-kube` runs this file. The tests build on each other, in file order.
"""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures.kubernetes import Cluster, until
from kube.loads import Loads, figures
from kube.release import FOLDER, NAMESPACE, PROTOCOLS, VALUES, Release, stream

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

Note = Callable[[str, object], None]
ORDERS = {"partitions": 3, "protocols": list(PROTOCOLS)}
EXCHANGE = FOLDER / "exchange.py"
QUIET_S = 120.0
DEBOUNCE_S = 45.0
"""Two resyncs, until the figures of the last records are stable."""


@pytest.fixture(scope="module")
def installed(empty: Cluster, note: Note) -> Release:
    found = Release(empty, [VALUES])
    note("install_s", found.install())
    return found


@pytest.fixture(scope="module")
def orders(installed: Release, note: Note) -> Release:
    """The Stream `orders`, ready for every protocol."""
    note("stream_ready_s", installed.serve("orders", **ORDERS))
    return installed


def ask(release: Release, path: str) -> Any:
    """The JSON body of a GET request to the REST server."""
    with urllib.request.urlopen(f"http://{release.outside('rest')[0]}{path}", timeout=30) as answer:
        return json.loads(answer.read())


def status(release: Release, name: str) -> dict[str, Any]:
    found: dict[str, Any] = release.cluster.get("stream", name).get("status", {})
    return found


def ready(release: Release, name: str) -> tuple[str, str]:
    """Status and reason of the Stream's condition Ready."""
    found = status(release, name).get("conditions", [])
    return next(
        ((condition["status"], condition["reason"]) for condition in found if condition["type"] == "Ready"), ("", "")
    )


def operator_writes(release: Release) -> float:
    """The total number of writes of the operator."""
    (pod,) = release.pods("operator")
    with urllib.request.urlopen(f"http://{pod.address}:8080/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("bearlake_operator_writes_total{"))


def test_only_the_operator_and_its_stores_run_without_streams(installed: Release) -> None:
    pods = installed.cluster.listed("pods", NAMESPACE)
    found = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods}

    assert found == {"operator", "postgresql", "objects"}


def test_a_stream_becomes_ready_and_shows_endpoints(orders: Release) -> None:
    found = status(orders, "orders")

    assert (found["name"], found["partitions"], found["observedGeneration"]) == ("orders", 3, 1)
    assert {endpoint["protocol"] for endpoint in found["endpoints"]} >= {"kafka", "pulsar", "rest", "registry", "grpc"}


def test_clients_of_four_protocols_outside_read_what_all_of_them_write(
    orders: Release, tmp_path: Path, note: Note
) -> None:
    orders.serve("outside", partitions=4, protocols=list(PROTOCOLS))
    with Loads(orders, "outside", partition_count=4, folder=tmp_path) as loads:
        loads.advance()
        counts = loads.finish()

    note("outside", figures(loads, counts))
    counts.assert_exact()
    assert not loads.failed()


def test_clients_of_four_protocols_in_a_pod_read_what_all_of_them_write(orders: Release) -> None:
    orders.serve("inside", **ORDERS)
    addresses = {
        endpoint["protocol"]: endpoint["address"]
        for endpoint in status(orders, "inside")["endpoints"]
        if endpoint["listener"] == "internal" and endpoint["protocol"] in PROTOCOLS
    }
    assert set(addresses) == set(PROTOCOLS)

    read = exchange(orders.cluster, "inside", addresses)

    written = sorted(f"{protocol}-{number}" for protocol in PROTOCOLS for number in range(10))
    assert {protocol: sorted(values) for protocol, values in read.items()} == dict.fromkeys(PROTOCOLS, written)


def exchange(cluster: Cluster, stream_name: str, addresses: dict[str, str]) -> dict[str, list[str]]:
    """Run exchange.py in a pod; returns the values that each protocol has read."""
    words = ["/scripts/exchange.py", stream_name, *(f"{name}={address}" for name, address in addresses.items())]
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "exchange",
        "image": "bearlake.test/clients:test",
        "command": ["python", *words],
        "env": [{"name": "PYTHONPATH", "value": "/clients"}],
        "securityContext": restricted,
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "scripts", "configMap": {"name": "exchange"}}],
    }
    own = {"name": "exchange", "namespace": NAMESPACE}
    script = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": own, "data": {"exchange.py": EXCHANGE.read_text()}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": own}
    cluster.apply(script, {**job, "spec": {"backoffLimit": 0, "template": {"spec": pod}}})

    def ended() -> Any:
        found = cluster.get("job", "exchange", NAMESPACE)["status"]
        return found.get("succeeded") or found.get("failed")

    until("the clients are done", ended, 240)
    said = cluster.kubectl("-n", NAMESPACE, "logs", "job/exchange")
    assert cluster.get("job", "exchange", NAMESPACE)["status"].get("succeeded") == 1, said
    cluster.kubectl("-n", NAMESPACE, "delete", "job", "exchange", "--timeout=60s")
    read: dict[str, list[str]] = json.loads(said.splitlines()[-1])
    return read


def test_partitions_and_configs_reach_the_data_layer_and_removed_configs_are_unset(orders: Release) -> None:
    grown = {**ORDERS, "partitions": 4}
    orders.cluster.apply(stream("orders", **grown, configs={"max.message.bytes": "2000000"}))
    until("four partitions", lambda: status(orders, "orders").get("partitions") == 4, 60)
    applied = until("the config", lambda: status(orders, "orders").get("appliedConfigs"), 60)
    assert applied == ["max.message.bytes"]

    orders.cluster.apply(stream("orders", **grown))

    until("no config", lambda: status(orders, "orders").get("appliedConfigs") == [], 60)
    (found,) = ask(orders, "/v3/clusters")["data"]
    config = ask(orders, f"/v3/clusters/{found['cluster_id']}/topics/orders/configs/max.message.bytes")
    assert config["value"] == "1048588"


def test_the_older_of_two_streams_owns_the_name(orders: Release) -> None:
    orders.cluster.apply(stream("orders-again", name="orders"))

    until("it says so", lambda: ready(orders, "orders-again") == ("False", "NameTaken"), 60)
    assert ready(orders, "orders")[0] == "True"
    orders.cluster.kubectl("delete", "stream", "orders-again", "--timeout=60s")


def test_manual_edits_and_deletions_are_reverted_within_five_seconds(orders: Release, note: Note) -> None:
    cluster = orders.cluster
    cluster.kubectl("-n", NAMESPACE, "set", "image", "deployment/bearlake-default-rest", "bearlake=example.test/evil:1")
    cluster.kubectl("-n", NAMESPACE, "delete", "service", "bearlake-default-rest-pods")
    started_s = time.monotonic()

    def is_repaired() -> bool:
        (container,) = orders.deployment("rest")["spec"]["template"]["spec"]["containers"]
        is_back = bool(cluster.get("service", "bearlake-default-rest-pods", NAMESPACE))
        return container["image"] == "bearlake.test/server:test" and is_back

    until("both are as they were", is_repaired, 5)
    note("repaired_s", round(time.monotonic() - started_s, 1))


def test_deletion_policy_delete_deletes_the_stream_and_retain_keeps_it(orders: Release) -> None:
    for name, policy in (("doomed", "Delete"), ("kept", "Retain")):
        orders.serve(name, protocols=["kafka"], deletionPolicy=policy)

    orders.cluster.kubectl("delete", "stream", "doomed", "kept", "--timeout=60s")

    topics = until("doomed is gone", lambda: "doomed" not in (found := ask(orders, "/topics")) and found, 60)
    assert "kept" in topics


def test_a_compactor_fills_the_table(orders: Release, note: Note) -> None:
    started_s = time.monotonic()
    note("compactor_ready_s", orders.compact())

    def backlog() -> Any:
        return orders.cluster.get("compactor", "main")["status"].get("backlogBytes")

    until("no backlog", lambda: backlog() == 0, 300)
    note("backlog_gone_s", round(time.monotonic() - started_s, 1))
    found = status(orders, "outside")["table"]
    assert found["name"] == "streams.outside"
    until("its backlog is gone", lambda: status(orders, "outside")["table"]["backlogBytes"] == 0, 60)


def test_the_operator_writes_nothing_when_nothing_changes(orders: Release, note: Note) -> None:
    for tier in PROTOCOLS:
        orders.wait_until_rolled_out(tier)
    until("orders is ready", lambda: ready(orders, "orders")[0] == "True", 60)
    time.sleep(DEBOUNCE_S)
    before = operator_writes(orders)

    time.sleep(QUIET_S)  # the test checks that nothing happens

    writes = operator_writes(orders) - before
    note("writes_in_two_quiet_minutes", writes)
    assert writes == 0


def test_a_tier_is_deleted_with_the_last_stream_that_asks_for_it(orders: Release) -> None:
    for name in ("orders", "outside", "inside"):
        found = orders.cluster.get("stream", name)["spec"]["partitions"]
        orders.cluster.apply(stream(name, partitions=found, protocols=["kafka", "rest"]))

    until("no gRPC", lambda: not orders.deployment("grpc"), 60)
    until("no Pulsar", lambda: not orders.deployment("pulsar"), 60)
    assert orders.deployment("rest")


def test_uninstalling_keeps_resources_and_secrets(orders: Release) -> None:
    orders.uninstall()

    assert orders.cluster.get("stream", "orders")
    assert orders.cluster.get("secret", "bl-default-admin", NAMESPACE)
    until("the tiers go with the operator", lambda: not orders.cluster.listed("deployments", NAMESPACE), 60)
