"""A Compactor with executor pods on a real cluster, from the chart's values to the rows in the table. Runs by `make test-kube`."""

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from fixtures.kubernetes import Cluster, until
from kube.release import NAMESPACE, VALUES, Release

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

Note = Callable[[str, object], None]
EXECUTORS = "spark-role=executor"
RECORD_COUNT = 1_000
SPARK = {
    "master": "k8s://https://kubernetes.default.svc",
    "executors": {"count": 1, "memory": "768Mi"},
    "conf": {"spark.kubernetes.executor.request.cores": "50m"},
}


@pytest.fixture(scope="module")
def release(empty: Cluster) -> Iterator[Release]:
    found = Release(empty, [VALUES])
    found.install()
    found.upgrade("sparkOnKubernetes.enabled=true")
    found.serve("orders", partitions=2, protocols=["kafka"])
    yield found
    found.uninstall()


def executors(release: Release) -> list[dict[str, Any]]:
    return release.cluster.listed("pods", NAMESPACE, EXECUTORS)


def test_executor_pods_fill_the_table(release: Release, note: Note) -> None:
    resource = {
        "apiVersion": "bearlake.dev/v1alpha1",
        "kind": "Compactor",
        "metadata": {"name": "pods", "namespace": NAMESPACE},
    }
    release.cluster.apply({**resource, "spec": {"replicas": 1, "spark": SPARK}})
    release.cluster.kubectl("-n", NAMESPACE, "wait", "compactor/pods", "--for=condition=Ready", "--timeout=300s")
    producer = confluent_kafka.Producer({"bootstrap.servers": ",".join(release.outside("kafka")), "acks": "all"})
    for number in range(RECORD_COUNT):
        producer.produce("orders", b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0

    def table() -> dict[str, Any]:
        found: dict[str, Any] = release.cluster.get("stream", "orders")["status"]
        return found["table"] if found["recordCount"] == RECORD_COUNT else {}

    until("all is in the table", lambda: table() and table()["backlogBytes"] == 0, 300)
    (pod,) = executors(release)
    (worker,) = release.pods("compactor")
    (container,) = pod["spec"]["containers"]
    note("spark_pods", {"driver_node": worker.node, "executor_node": pod["spec"]["nodeName"], "records": RECORD_COUNT})
    assert pod["status"]["phase"] == "Running"
    assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == [worker.name]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert not any("serviceaccount" in mount["mountPath"] for mount in container["volumeMounts"])
    assert "Exception" not in release.cluster.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"])


def test_executors_are_deleted_with_the_worker(release: Release) -> None:
    release.cluster.kubectl("-n", NAMESPACE, "delete", "compactor", "pods")

    until("no executors", lambda: not executors(release), 120)
