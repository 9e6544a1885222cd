"""The steps of docs/kubernetes.md, "Try it": the quickstart values, `helm test`, the examples, a record through a pod, and SQL."""

import time
from collections.abc import Callable

import pytest

from fixtures.kubernetes import Cluster, until
from kube.release import CHART, FOLDER, NAMESPACE, Release

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

Note = Callable[[str, object], None]

EXAMPLES = f"{CHART}/examples"
VALUES = FOLDER / "values-quickstart.yaml"
SQL = "select _partition_id, _offset, decode(_value) as value from orders"


@pytest.fixture(scope="module")
def installed(empty: Cluster) -> Cluster:
    Release(empty, [FOLDER.parents[1] / "charts/bearlake/examples/quickstart-values.yaml", VALUES]).install()
    return empty


def bearlake(cluster: Cluster, deployment: str, *words: str, given: str | None = None) -> str:
    """The output of `bearlake …` in a pod of the deployment."""
    stdin = ["-i"] if given is not None else []
    return cluster.kubectl(
        "exec", *stdin, "-n", NAMESPACE, f"deploy/{deployment}", "--", "bearlake", *words, given=given
    )


@pytest.mark.parametrize("protocol", ["kafka", "rest"])
def test_helm_test_succeeds_and_cleans_up(installed: Cluster, protocol: str, note: Note) -> None:
    changed = ["--set", f"test.protocol={protocol}"]
    values = ["-f", f"{EXAMPLES}/quickstart-values.yaml", "-f", str(VALUES)]
    installed.helm("upgrade", "bl", CHART, "-n", NAMESPACE, *values, *changed, "--wait", "--timeout", "5m")
    started_s = time.monotonic()

    shown = installed.helm("test", "bl", "-n", NAMESPACE, "--logs", "--timeout", "6m")

    note(f"helm_test_{protocol}_s", round(time.monotonic() - started_s, 1))
    assert f"100 records were written to bl-default-test and read back through {protocol}" in shown
    until("the Stream is gone", lambda: not installed.listed("streams", NAMESPACE), 60)
    until("the tier is gone", lambda: not installed.get("deployment", f"bearlake-default-{protocol}", NAMESPACE), 60)


def test_helm_test_reports_what_it_waits_for(installed: Cluster) -> None:
    values = ["-f", f"{EXAMPLES}/quickstart-values.yaml", "-f", str(VALUES)]
    changed = ["--set", "test.timeoutSeconds=1,dataLayers.default.tiers.kafka.replicas=0"]
    installed.helm("upgrade", "bl", CHART, "-n", NAMESPACE, *values, *changed, "--wait", "--timeout", "5m")

    shown = installed.helm("test", "bl", "-n", NAMESPACE, "--logs", "--timeout", "3m", is_checked=False)

    assert "FAILED: the stream is not served: " in shown
    installed.helm("upgrade", "bl", CHART, "-n", NAMESPACE, *values, "--wait", "--timeout", "5m")


def test_a_record_goes_through_the_examples_into_the_table(installed: Cluster, note: Note) -> None:
    started_s = time.monotonic()
    installed.kubectl("apply", "-f", f"{EXAMPLES}/stream.yaml", "-f", f"{EXAMPLES}/compactor.yaml")
    installed.kubectl("wait", "stream/orders", "compactor/main", "--for=condition=Ready", "--timeout=5m")
    note("examples_ready_s", round(time.monotonic() - started_s, 1))

    bearlake(installed, "bearlake-default-kafka", "produce", "orders", given="hello, lake\n")
    read = bearlake(installed, "bearlake-default-kafka", "consume", "orders", "--from-beginning", "--max-messages", "1")

    assert read == "hello, lake\n"
    worker, settings = "bearlake-compactor-default-main", "/etc/bearlake/settings/bearlake.yaml"
    until(
        "the record is in the table",
        lambda: "hello, lake" in bearlake(installed, worker, "sql", "--config", settings, SQL),
        120,
    )
