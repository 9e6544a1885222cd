"""The chart on a real cluster: installed, used through every protocol, changed, rolled, killed, and left alone when nothing changes.

Runs by `make test-kube`; the tests build on each other in the order in which they stand here.
"""

import json
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from fixtures.kubernetes import REPOSITORY, Cluster, find_cluster, until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

NAMESPACE = "lake"
RELEASE = "bl"
CHART = str(REPOSITORY / "charts/bearlake")
VALUES = str(Path(__file__).parent / "values.yaml")
KAFKA_PORT = 30094
READY_S = 240


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = find_cluster()
    found.kubectl(
        "delete", "streams,compactors", "--all", "-A", "--ignore-not-found", "--timeout=60s", is_checked=False
    )
    found.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
    found.kubectl("create", "namespace", NAMESPACE)
    found.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    return found


@pytest.fixture(scope="module")
def installed(cluster: Cluster, record_testsuite_property: Any) -> Cluster:
    started = time.monotonic()
    cluster.helm("install", RELEASE, CHART, "-n", NAMESPACE, "-f", VALUES, "--wait", "--timeout", "5m")
    record_testsuite_property("install_s", round(time.monotonic() - started, 1))
    return cluster


@pytest.fixture(scope="module")
def orders(installed: Cluster, record_testsuite_property: Any) -> Cluster:
    """The Stream `orders`, ready, for three protocols."""
    started = time.monotonic()
    installed.apply(stream("orders", partitions=3, protocols=["kafka", "rest", "grpc"]))
    installed.kubectl("wait", "stream/orders", "--for=condition=Ready", f"--timeout={READY_S}s")
    record_testsuite_property("stream_ready_s", round(time.monotonic() - started, 1))
    return installed


def stream(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "bearlake.dev/v1alpha1", "kind": "Stream", "metadata": {"name": name}, "spec": spec}


def bootstrap(cluster: Cluster) -> str:
    return ",".join(f"{address}:{KAFKA_PORT}" for address in cluster.node_addresses())


def service_url(cluster: Cluster, tier: str, port: int) -> str:
    service = cluster.get("service", f"bearlake-default-{tier}", NAMESPACE)
    return f"http://{service['spec']['clusterIP']}:{port}"


def ask(url: str, body: object = None, content_type: str = "application/json") -> Any:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": content_type})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def condition(cluster: Cluster, kind: str, name: str, type_: str = "Ready") -> tuple[str, str]:
    found = cluster.get(kind, name).get("status", {}).get("conditions", [])
    return next(((one["status"], one["reason"]) for one in found if one["type"] == type_), ("", ""))


def operator_writes(cluster: Cluster) -> float:
    """How many changes the operator has sent to the API, all in all."""
    (pod,) = cluster.listed("pods", NAMESPACE, "app.kubernetes.io/component=operator")
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("bearlake_operator_writes_total{"))


def read_all(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """The values of a topic from its beginning, `count` at least."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": f"reader-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 120
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=1):
            assert message.error() is None, message.error()
            values.append(message.value())
    consumer.close()
    return values


class Load:
    """An idempotent producer that sends until it is stopped; counts what was acknowledged and what failed."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: Counter[str] = Counter()
        self._topic = topic
        self._stopping = threading.Event()
        settings = {"bootstrap.servers": bootstrap(cluster), "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Load":
        self._thread.start()
        until("the first acknowledgement", lambda: self.acknowledged, 60)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(timeout=120)

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.01):
            value = b"%s-%d" % (self._topic.encode(), number)
            self._producer.produce(self._topic, value, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
        self._producer.flush(90)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failures[str(error)] += 1


def test_nothing_runs_but_the_operator_and_its_stores_until_a_stream_asks(installed: Cluster) -> None:
    pods = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in installed.listed("pods", NAMESPACE)}

    assert pods == {"operator", "postgresql", "objects"}


def test_a_stream_becomes_ready_and_says_where_clients_connect(orders: Cluster) -> None:
    status = orders.get("stream", "orders")["status"]

    assert (status["name"], status["partitions"], status["observedGeneration"]) == ("orders", 3, 1)
    assert {one["protocol"] for one in status["endpoints"]} == {"kafka", "rest", "registry", "grpc"}


def test_what_kafka_clients_write_from_outside_rest_clients_read(orders: Cluster) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(orders)})
    for number in range(1000):
        producer.produce("orders", b'{"n": %d}' % number)
    assert producer.flush(60) == 0
    rest = service_url(orders, "rest", 8082)

    assert ask(f"{rest}/topics") == ["orders"]
    answer = ask(f"{rest}/topics/orders", {"records": [{"value": {"n": 1000}}]}, "application/vnd.kafka.json.v2+json")

    assert answer["offsets"][0]["error"] is None
    values = read_all(orders, "orders", 1001)
    assert sorted(json.loads(value)["n"] for value in values) == list(range(1001))


def test_growth_and_configs_reach_the_data_layer_and_what_is_not_named_any_more_is_unset(orders: Cluster) -> None:
    orders.apply(
        stream("orders", partitions=4, protocols=["kafka", "rest", "grpc"], configs={"max.message.bytes": "2000000"})
    )
    until("four partitions", lambda: orders.get("stream", "orders")["status"].get("partitions") == 4, 60)
    applied = until("the config", lambda: orders.get("stream", "orders")["status"].get("appliedConfigs"), 60)
    assert applied == ["max.message.bytes"]

    orders.apply(stream("orders", partitions=4, protocols=["kafka", "rest", "grpc"]))

    until("no config", lambda: orders.get("stream", "orders")["status"].get("appliedConfigs") == [], 60)
    rest = service_url(orders, "rest", 8082)
    (clusters,) = ask(f"{rest}/v3/clusters")["data"]
    config = ask(f"{rest}/v3/clusters/{clusters['cluster_id']}/topics/orders/configs/max.message.bytes")
    assert config["value"] == "1048588"


def test_the_older_of_two_streams_has_the_name(orders: Cluster) -> None:
    orders.apply(stream("orders-again", name="orders"))

    until("it says so", lambda: condition(orders, "stream", "orders-again") == ("False", "NameTaken"), 60)
    assert condition(orders, "stream", "orders")[0] == "True"
    orders.kubectl("delete", "stream", "orders-again", "--timeout=60s")


def test_the_operator_is_silent_when_nothing_changes(orders: Cluster, record_testsuite_property: Any) -> None:
    until("orders is ready", lambda: condition(orders, "stream", "orders")[0] == "True", 60)
    time.sleep(45)  # figures of the last records settle: two rounds of looking at everything
    before = operator_writes(orders)

    time.sleep(120)

    writes = operator_writes(orders) - before
    record_testsuite_property("writes_in_two_quiet_minutes", writes)
    assert writes == 0


def test_hand_edits_and_deletions_are_repaired_within_five_seconds(orders: Cluster) -> None:
    orders.kubectl("-n", NAMESPACE, "set", "image", "deployment/bearlake-default-rest", "bearlake=example.test/evil:1")
    orders.kubectl("-n", NAMESPACE, "delete", "service", "bearlake-default-rest-pods")

    def is_repaired() -> bool:
        deployment = orders.get("deployment", "bearlake-default-rest", NAMESPACE)
        image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
        return image == "bearlake.test/server:test" and bool(
            orders.get("service", "bearlake-default-rest-pods", NAMESPACE)
        )

    until("both are as they were", is_repaired, 5)


def test_a_rolling_upgrade_under_load_fails_no_request_and_loses_nothing(
    orders: Cluster, record_testsuite_property: Any
) -> None:
    orders.apply(stream("rolling", partitions=2))
    orders.kubectl("wait", "stream/rolling", "--for=condition=Ready", f"--timeout={READY_S}s")
    with Load(orders, "rolling") as load:
        started = time.monotonic()
        changed = "dataLayers.default.tiers.kafka.settings.kafka.idle_ms=500000"
        orders.helm("upgrade", RELEASE, CHART, "-n", NAMESPACE, "-f", VALUES, "--set", changed)
        until("the new settings", lambda: _generation(orders) > 1, 120)
        orders.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/bearlake-default-kafka", "--timeout=300s")
        record_testsuite_property("rolling_upgrade_s", round(time.monotonic() - started, 1))

    assert not load.failures
    check_exactly(orders, "rolling", load)


def _generation(cluster: Cluster) -> int:
    found = cluster.get("deployment", "bearlake-default-kafka", NAMESPACE)
    generation: int = found["metadata"]["generation"]
    return generation


def test_killed_pods_lose_nothing(orders: Cluster) -> None:
    orders.apply(stream("killed", partitions=2))
    orders.kubectl("wait", "stream/killed", "--for=condition=Ready", f"--timeout={READY_S}s")
    labels = "app.kubernetes.io/component=kafka"
    with Load(orders, "killed") as load:
        for _ in range(3):
            victim = orders.listed("pods", NAMESPACE, labels)[0]["metadata"]["name"]
            orders.kubectl("-n", NAMESPACE, "delete", "pod", victim, "--grace-period=0", "--force")
            orders.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/bearlake-default-kafka", "--timeout=120s")

    assert not load.failures
    check_exactly(orders, "killed", load)


def check_exactly(cluster: Cluster, topic: str, load: Load) -> None:
    """Every acknowledged record is there once, and nothing else."""
    found = Counter(read_all(cluster, topic, len(load.acknowledged)))

    assert found == Counter(load.acknowledged)


def test_a_stream_that_says_so_is_deleted_with_its_resource_and_others_stay(orders: Cluster) -> None:
    orders.apply(stream("doomed", deletionPolicy="Delete"), stream("kept"))
    for name in ("doomed", "kept"):
        orders.kubectl("wait", f"stream/{name}", "--for=condition=Ready", f"--timeout={READY_S}s")

    orders.kubectl("delete", "stream", "doomed", "kept", "--timeout=60s")

    rest = service_url(orders, "rest", 8082)
    topics = until("doomed is gone", lambda: "doomed" not in (found := ask(f"{rest}/topics")) and found, 60)
    assert "kept" in topics


def test_a_compactor_fills_the_table(orders: Cluster, record_testsuite_property: Any) -> None:
    started = time.monotonic()
    orders.apply(
        {
            "apiVersion": "bearlake.dev/v1alpha1",
            "kind": "Compactor",
            "metadata": {"name": "main"},
            "spec": {"replicas": 1},
        }
    )
    orders.kubectl("wait", "compactor/main", "--for=condition=Ready", "--timeout=300s")
    until("no backlog", lambda: orders.get("compactor", "main")["status"].get("backlogBytes") == 0, 300)
    record_testsuite_property("backlog_gone_s", round(time.monotonic() - started, 1))

    found = orders.get("stream", "orders")["status"]["table"]
    assert found["name"] == "streams.orders"
    until("orders has no backlog", lambda: orders.get("stream", "orders")["status"]["table"]["backlogBytes"] == 0, 60)


def test_a_tier_goes_with_the_last_stream_that_asks_for_it(orders: Cluster) -> None:
    orders.apply(stream("orders", partitions=4, protocols=["kafka", "rest"]))

    until("no gRPC", lambda: not orders.get("deployment", "bearlake-default-grpc", NAMESPACE), 60)
    assert orders.get("deployment", "bearlake-default-rest", NAMESPACE)


def test_uninstalling_leaves_resources_and_secrets(orders: Cluster) -> None:
    orders.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", "3m")

    assert orders.get("stream", "orders")
    assert orders.get("secret", f"{RELEASE}-default-admin", NAMESPACE)
    until("the tiers go with the operator", lambda: not orders.listed("deployments", NAMESPACE), 60)
