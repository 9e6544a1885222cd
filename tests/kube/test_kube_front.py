"""The console and an import on a real cluster: a browser looks at the streams, and a Stream follows a topic until it is promoted.

The other cluster is a pod of its own with `bearlake serve kafka`: what an import does with Apache Kafka is in tests/importing.
`make test-kube` runs this file. The tests build on each other, in file order.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fixtures.console_lake import browser_path, launched
from fixtures.kubernetes import Cluster, until
from fixtures.waiting import WAIT_S
from kube.release import FOLDER, NAMESPACE, VALUES, Release

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "moved"
GROUP = "billing"
PARTITION_COUNT = 2
COMMITTED = 7
"""The offset that the group has committed in each partition of the source."""
CONSOLE_PORT = 9645


@pytest.fixture(scope="module")
def installed(empty: Cluster) -> Release:
    found = Release(empty, [VALUES, FOLDER / "values-front.yaml"])
    found.install()
    return found


@pytest.fixture(scope="module")
def source(installed: Release) -> str:
    """`host:port` of the other cluster, which has the topic `moved`, its first records, and the offsets of a group."""
    installed.cluster.apply(*other_cluster())
    installed.cluster.kubectl("-n", NAMESPACE, "wait", "pod/old", "--for=condition=Ready", "--timeout=120s")
    address = f"{installed.cluster.get('pod', 'old', NAMESPACE)['status']['podIP']}:9092"
    admin = AdminClient({"bootstrap.servers": address})
    topic = NewTopic(TOPIC, PARTITION_COUNT)
    admin.create_topics([topic])[TOPIC].result(WAIT_S)
    write([address], values(0, 40))
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": GROUP})
    parts = [confluent_kafka.TopicPartition(TOPIC, at, COMMITTED) for at in range(PARTITION_COUNT)]
    consumer.commit(offsets=parts, asynchronous=False)
    consumer.close()
    return address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = browser_path()
    if path is None:
        pytest.skip("needs Chromium on PATH (Debian: chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    with sync_api.sync_playwright() as driver:
        running = launched(driver, path)
        yield running
        running.close()


def other_cluster() -> list[dict[str, Any]]:
    """A pod with a Kafka server on stores of its own, and its Service."""
    own = {"name": "old", "namespace": NAMESPACE, "labels": {"app": "old"}}
    stores = ("--metadata-url", "sqlite:////data/metadata.db", "--catalog-url", "sqlite:////data/catalog.db")
    container = {
        "name": "kafka",
        "image": "bearlake.test/server:test",
        "args": [
            "serve",
            "kafka",
            "--name",
            "old",
            "--object-store-url",
            "file:///data/objects",
            *stores,
        ],
        "env": [
            {"name": "BEARLAKE_LISTENERS__KAFKA__HOST", "value": "0.0.0.0"},
            {"name": "BEARLAKE_AUTHENTICATION__ANONYMOUS", "value": "true"},
            {
                "name": "BEARLAKE_LISTENERS__KAFKA__ADVERTISED_HOST",
                "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
            },
        ],
        "readinessProbe": {"tcpSocket": {"port": 9092}, "periodSeconds": 2},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    user = {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": user,
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    ports = [{"name": "kafka", "port": 9092}]
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": pod},
        {"apiVersion": "v1", "kind": "Service", "metadata": own, "spec": {"selector": {"app": "old"}, "ports": ports}},
    ]


def values(start: int, end: int) -> list[str]:
    return [f"value-{number}" for number in range(start, end)]


def write(addresses: Sequence[str], texts: Sequence[str]) -> list[Any]:
    """Write values to the partitions in turn; returns the errors of those that were refused."""
    refused: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": ",".join(addresses), "message.timeout.ms": 1000 * WAIT_S})
    for number, text in enumerate(texts):
        producer.produce(
            TOPIC,
            text.encode(),
            partition=number % PARTITION_COUNT,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    return refused


def read(addresses: Sequence[str]) -> list[tuple[int, int, str, int]]:
    """Partition, offset, value and timestamp of all records of the topic, in the order of partitions and offsets."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": ",".join(addresses), "group.id": "unused"})
    found: list[tuple[int, int, str, int]] = []
    for at in range(PARTITION_COUNT):
        part = confluent_kafka.TopicPartition(TOPIC, at, 0)
        _, end = consumer.get_watermark_offsets(part, WAIT_S)
        consumer.assign([part])
        while not found or found[-1][0] < at or found[-1][1] < end - 1:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            found.append((at, message.offset(), message.value().decode(), message.timestamp()[1]))
    consumer.close()
    return found


def test_a_stream_with_a_source_has_the_topic_with_its_offsets_and_follows_it(installed: Release, source: str) -> None:
    installed.serve(TOPIC, source={"name": "old"}, protocols=["kafka", "rest"])
    here = installed.outside("kafka")
    until("the first records are imported", lambda: read(here) == read([source]), 60)

    assert write([source], values(40, 80)) == []

    until("later records are imported", lambda: len(read(here)) == 80, 60)
    assert read(here) == read([source])


def test_nobody_else_writes_to_a_stream_that_is_imported(installed: Release, source: str) -> None:
    refused = write(installed.outside("kafka"), ["from elsewhere"])

    assert [error.name() for error in refused] == ["TOPIC_AUTHORIZATION_FAILED"]
    assert read(installed.outside("kafka")) == read([source])


def test_the_console_shows_the_stream_and_its_records(installed: Release, browser: Any) -> None:
    installed.wait_until_rolled_out("console")
    (pod,) = installed.pods("console")
    tab = browser.new_page()
    tab.set_default_timeout(1000 * WAIT_S)

    tab.goto(f"http://{pod.address}:{CONSOLE_PORT}/#/streams")
    tab.get_by_role("link", name=TOPIC, exact=True).click()
    tab.get_by_role("link", name="Records", exact=True).click()

    tab.get_by_text("value-79").wait_for()
    tab.close()


def test_removing_the_source_promotes_the_stream_and_its_groups_go_on(installed: Release, source: str) -> None:
    before, here = read([source]), installed.outside("kafka")
    until("the offsets of the group are imported", lambda: committed(here) == [COMMITTED] * PARTITION_COUNT, 120)
    spec = json.dumps({"spec": {"source": None, "partitions": PARTITION_COUNT}})
    installed.cluster.kubectl("patch", "stream", TOPIC, "--type", "merge", "-p", spec)

    until("the stream takes records", lambda: write(here, ["first"]) == [], 120)
    assert write(here, values(80, 90)) == []

    found = read(here)
    new = {"first", *values(80, 90)}
    assert [row for row in found if row[2] not in new] == before
    assert {row[2] for row in found if row[1] >= 40} == new
    assert committed(here) == [COMMITTED] * PARTITION_COUNT
    assert "import" not in installed.cluster.get("stream", TOPIC)["status"]


def committed(addresses: Sequence[str]) -> list[int]:
    """The offsets that the group has committed."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": ",".join(addresses), "group.id": GROUP})
    parts = [confluent_kafka.TopicPartition(TOPIC, at) for at in range(PARTITION_COUNT)]
    found = [part.offset for part in consumer.committed(parts, WAIT_S)]
    consumer.close()
    return found
