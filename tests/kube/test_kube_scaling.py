"""Autoscaling on a real cluster: servers by load, workers by backlog, independent of each other, without failed requests.

Kafka's clients connect to the pods' own addresses, as from inside the cluster, so that every pod's share can be measured. Runs by
`make test-kube`; the tests build on each other in file order.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from faults.checking import Counts, check
from faults.load import Producer, Reader, read_log
from faults.rest_load import HttpClient, RestProducer
from fixtures.kubernetes import Cluster, until
from kube.release import CHART, FOLDER, NAMESPACE, VALUES, VALUES_STORES, Release

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1200)]

Note = Callable[[str, object], None]
VALUES_SCALING = FOLDER / "values-scaling.yaml"
STREAM = "busy"
PARTITION_COUNT = 6
RECORD_BYTES = 1000
STEADY_PER_SECOND = 20
BURST_PER_SECOND = 500
SHARE_BYTES = BURST_PER_SECOND * RECORD_BYTES // 20
"""Bytes per second that a pod receives only if clients have moved to it."""
ASKER_COUNT = 4
GROW_S = 120
SHRINK_S = 300
CUSTOM = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/pods/*"
EXTERNAL = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}"
FAR = "1Gi"
"""A target backlog per worker that these tests do not reach."""
NEAR = "32k"
"""A target backlog that a few seconds of the steady load reach."""


@pytest.fixture(scope="module")
def release(stores: Cluster) -> Iterator[Release]:
    """The release with autoscaled tiers, a Stream, and one idle worker."""
    found = Release(stores, [VALUES, VALUES_STORES, VALUES_SCALING])
    found.install()
    found.serve(STREAM, partitions=PARTITION_COUNT, protocols=["kafka", "rest"], table={"freshness": "10s"})
    compact(found, FAR)
    found.wait("compactor", "main")
    until("autoscalers have their metrics", lambda: active_tiers(found) == {"kafka", "rest", "compactor"}, GROW_S)
    yield found
    found.uninstall()  # other modules need the cluster's metrics APIs


def compact(release: Release, target: str) -> None:
    scaling = {"minReplicas": 1, "maxReplicas": 2, "targetBacklogBytes": target}
    resource = {"apiVersion": "bearlake.dev/v1alpha1", "kind": "Compactor", "metadata": {"name": "main"}}
    release.cluster.apply({**resource, "spec": {"autoscaling": scaling}})


def active_tiers(release: Release) -> set[str]:
    """The tiers whose autoscaler reads its metric."""
    return {
        autoscaler["metadata"]["labels"]["app.kubernetes.io/component"]
        for autoscaler in release.cluster.listed("horizontalpodautoscalers", NAMESPACE)
        for condition in autoscaler.get("status", {}).get("conditions", [])
        if (condition["type"], condition["status"]) == ("ScalingActive", "True")
    }


def raw(release: Release, path: str) -> list[dict[str, Any]]:
    """The items in the API server's response; empty after an error."""
    text = release.cluster.kubectl("get", "--raw", path, is_checked=False)
    found: list[dict[str, Any]] = json.loads(text)["items"] if text.startswith("{") else []
    return found


def number(quantity: str) -> float:
    return int(quantity.removesuffix("m")) / 1000 if quantity.endswith("m") else float(quantity)


def ready_count(release: Release, tier: str) -> int:
    return sum(pod.is_ready and not pod.is_leaving for pod in release.pods(tier))


class Watch:
    """The maximum number of pods per tier during a wait."""

    def __init__(self, release: Release, *tiers: str) -> None:
        self._release = release
        self.most = dict.fromkeys(tiers, 0)

    def until(self, tier: str, count: int, seconds: float) -> float:
        """Wait until the tier has exactly `count` pods, all ready; returns the seconds."""
        started_s = time.monotonic()

        def is_so() -> bool:
            for name in self.most:
                wanted = self._release.deployment(name)["spec"]["replicas"]
                self.most[name] = max(self.most[name], wanted)
            return len(self._release.pods(tier)) == count == ready_count(self._release, tier)

        until(f"{count} pods of {tier}", is_so, seconds)
        return round(time.monotonic() - started_s, 1)


class Steady:
    """A small steady load through the addresses of pods."""

    def __init__(self, release: Release) -> None:
        self.bootstrap = release.inside("kafka", 9092)
        self.producers = [self._producer("steady", STEADY_PER_SECOND)]
        self.reader = Reader("reader", self.bootstrap, STREAM, PARTITION_COUNT)
        for client in (*self.producers, self.reader):
            client.start()
        until("records are acknowledged", lambda: self.producers[0].acknowledged, 60)

    def _producer(self, name: str, per_second: int) -> Producer:
        return Producer(
            name, self.bootstrap, STREAM, PARTITION_COUNT, per_second=per_second, padding_bytes=RECORD_BYTES
        )

    def burst(self) -> Producer:
        """A large load until it is stopped."""
        found = self._producer("burst", BURST_PER_SECOND)
        self.producers.append(found)
        found.start()
        return found

    def finish(self) -> Counts:
        """Stop, and check the sent and received records against the log."""
        for producer in self.producers:
            producer.stop()
        log = read_log(self.bootstrap, STREAM, PARTITION_COUNT)
        stored = sum(map(len, log.values()))

        def has_all() -> bool:
            self.reader.raise_failure()
            return len(self.reader.read) >= stored

        until("the reader has everything", has_all, 120)
        self.reader.stop()
        acknowledged = [record for producer in self.producers for record in producer.acknowledged]
        unknown = {name for producer in self.producers for name in producer.unknown}
        return check(acknowledged, unknown, log, {"reader": self.reader.read})

    def failed(self) -> dict[Any, str]:
        """Records that a library gave up on."""
        return {name: error for producer in self.producers for name, error in producer.failed.items()}


class Asker(HttpClient):
    """Lists topics repeatedly, as fast as the server responds."""

    def run(self) -> None:
        while self.goes_on:
            answer = self.ask("GET", f"{self.url}/topics")
            if answer is not None and not answer.ok:
                self.complaints[f"status {answer.status_code}"] += 1


@pytest.fixture(scope="module")
def steady(release: Release) -> Iterator[Steady]:
    found = Steady(release)
    yield found
    for client in (*found.producers, found.reader):
        client.begin_stop()


def test_users_and_autoscalers_can_read_metrics(release: Release, steady: Steady) -> None:
    selector = "?labelSelector=app.kubernetes.io%2Fcomponent%3Dkafka"
    for metric in ("bearlake_requests_per_second", "bearlake_bytes_per_second"):
        (item,) = until(f"{metric} is known", partial(raw, release, f"{CUSTOM}/{metric}{selector}"), 60)
        assert item["describedObject"]["name"] == release.pods("kafka")[0].name
    (item,) = raw(release, f"{EXTERNAL}/bearlake_compaction_backlog_bytes")
    assert item["metricLabels"]["bearlake.dev/data-layer"] == "default"

    found = release.cluster.kubectl("get", "apiservices", "-o", "json")
    states = {
        resource["metadata"]["name"]: [(c["type"], c["status"]) for c in resource["status"]["conditions"]]
        for resource in json.loads(found)["items"]
        if resource["metadata"]["name"].startswith(("v1beta2.custom", "v1beta1.external"))
    }
    assert set(states) == {"v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"}
    assert all(state == [("Available", "True")] for state in states.values())


def test_load_scales_servers_but_not_workers(release: Release, steady: Steady, note: Note) -> None:
    watch = Watch(release, "kafka", "compactor")
    burst = steady.burst()
    grown_s = watch.until("kafka", 3, GROW_S)

    def shares() -> dict[str, float]:
        items = raw(release, f"{CUSTOM}/bearlake_bytes_per_second?labelSelector=app.kubernetes.io%2Fcomponent%3Dkafka")
        found = {item["describedObject"]["name"]: number(item["value"]) for item in items}
        return found if len(found) == 3 and min(found.values()) > SHARE_BYTES else {}

    started_s = time.monotonic()
    traffic = until("every pod has traffic", shares, 90)
    moved_s = round(time.monotonic() - started_s, 1)
    burst.stop()
    shrunk_s = watch.until("kafka", 1, SHRINK_S)

    note(
        "scaling_servers",
        {
            "grown_1_to_3_s": grown_s,
            "every_pod_has_traffic_s": moved_s,
            "bytes_per_second": sorted(round(value) for value in traffic.values()),
            "shrunk_3_to_1_s": shrunk_s,
            "workers_at_most": watch.most["compactor"],
        },
    )
    assert watch.most == {"kafka": 3, "compactor": 1}


def test_backlog_scales_workers_but_not_servers(release: Release, steady: Steady, note: Note) -> None:
    watch = Watch(release, "kafka", "compactor")
    compact(release, NEAR)
    grown_s = watch.until("compactor", 2, GROW_S)
    compact(release, FAR)
    shrunk_s = watch.until("compactor", 1, SHRINK_S)

    note(
        "scaling_workers",
        {"grown_1_to_2_s": grown_s, "shrunk_2_to_1_s": shrunk_s, "servers_at_most": watch.most["kafka"]},
    )
    assert watch.most == {"kafka": 1, "compactor": 2}


def test_no_request_failed_during_scaling(steady: Steady, note: Note) -> None:
    counts = steady.finish()

    failed = steady.failed()
    note(
        "scaling_clients",
        {"acknowledged": counts.acknowledged, "lost": counts.lost, "failed_requests": len(failed) + counts.unknown},
    )
    counts.assert_exact()
    assert not failed
    assert counts.unknown == 0


def test_cpu_scales_servers_with_metrics_server(release: Release, note: Note) -> None:
    watch = Watch(release, "rest")
    urls = [f"http://{release.inside('rest', 8082)}"]
    quiet = RestProducer("quiet", urls, STREAM, PARTITION_COUNT, per_second=STEADY_PER_SECOND)
    loud = [Asker(f"loud-{at}", urls) for at in range(ASKER_COUNT)]
    with contextlib.ExitStack() as stack:
        for client in (quiet, *loud):
            stack.callback(client.begin_stop)
            client.start()
        grown_s = watch.until("rest", 2, GROW_S)
        for client in loud:
            client.stop()
        shrunk_s = watch.until("rest", 1, SHRINK_S)
    quiet.stop()

    failed = [text for client in (quiet, *loud) for text in (*client.broken, *client.complaints)]
    requests = sum(client.request_count for client in (quiet, *loud))
    note(
        "scaling_by_cpu",
        {"grown_1_to_2_s": grown_s, "shrunk_2_to_1_s": shrunk_s, "requests": requests, "failed_requests": len(failed)},
    )
    assert [text for text in failed if text != "refused"] == []


def test_an_upgrade_keeps_the_certificate_and_the_autoscalers_metrics(release: Release) -> None:
    def secret() -> dict[str, str]:
        found: dict[str, str] = release.cluster.get("secret", "bl-metrics-api", NAMESPACE)["data"]
        return found

    before = secret()
    release.upgrade("metricsApi.windowSeconds=8")
    release.wait_until_rolled_out("metrics-api")

    assert secret() == before
    until("metrics are known", lambda: raw(release, f"{CUSTOM}/bearlake_bytes_per_second"), 60)


def test_an_existing_metrics_api_is_not_taken_over(release: Release) -> None:
    values = "quickstart.enabled=true,metricsApi.enabled=true,crds.install=false"
    complaint = release.cluster.helm(
        *("install", "other", CHART, "-n", "default", "--dry-run=server", "--set", values), is_checked=False
    )

    assert f"custom.metrics.k8s.io, served by {NAMESPACE}/bl-metrics-api" in complaint
    assert "metricsApi.custom=false" in complaint
