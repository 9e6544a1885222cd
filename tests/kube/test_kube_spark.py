"""Compaction with executors in pods: a real API server that admits only restricted pods, Spark's real driver under a real ServiceAccount
with the chart's Role and the operator's template, and the pods' real program. Only the node is simulated: this test starts the programs
that a kubelet would start in containers.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bearlake.clock import SystemClock
from bearlake.compaction.runner import InProcess
from bearlake.compaction.spark.runner import SparkRunner
from bearlake.compaction.spark.settings import SparkKubernetesSettings, SparkSettings
from bearlake.compaction.workbench import TaskLimits
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.records import codec
from bearlake.records.codec import Record
from bearlake.wal.keys import KeySource
from bearlake_operator import api
from bearlake_operator import settings as operator_settings
from bearlake_operator.manifests import compactor
from fixtures.compaction_items import Wal, workbench
from fixtures.control_plane import ControlPlane, control_plane
from fixtures.kubernetes import REPOSITORY, until
from fixtures.server_process import clean_environment

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # py4j leaves closing the sockets of threads to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NAMESPACE, ACCOUNT, DRIVER = "lake", "lake-spark", "lake-compactor"
EXECUTORS = "spark-role=executor"
ITEM_COUNT, EXECUTOR_COUNT = 6, 2
POLL_S = 0.2
TIMEOUT_S = 60


class Node:
    """Starts the program of each executor's pod, and ends it with the pod, in its own thread until `close`."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._is_closed = threading.Event()
        self.pods: dict[str, dict[str, Any]] = {}
        """All pods that were ever started, by name."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join(TIMEOUT_S)
        for name in list(self._programs):
            self._end(name)

    def present(self) -> dict[str, dict[str, Any]]:
        listed = json.loads(self._plane.kubectl("-n", NAMESPACE, "get", "pods", "-l", EXECUTORS, "-o", "json"))
        return {pod["metadata"]["name"]: pod for pod in listed["items"]}

    def fail(self, name: str) -> None:
        """Kill the pod's program, as in a pod that is out of memory."""
        self._programs[name].kill()
        self._patch(name, {"phase": "Failed"})

    def _run(self) -> None:
        while not self._is_closed.wait(POLL_S):
            present = self.present()
            for name in set(self._programs) - set(present):
                self._end(name)
            for name in set(present) - set(self.pods):
                self.pods[name] = present[name]
                self._start(name, present[name])

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        (container,) = pod["spec"]["containers"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        environment = {
            variable["name"]: variable["value"]
            if "value" in variable
            else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in container["env"]
        }
        environment["SPARK_LOCAL_DIRS"] = str(self._folder)
        with (self._folder / f"{name}.log").open("wb") as out:
            self._programs[name] = subprocess.Popen(
                [sys.executable, "-m", "bearlake", *container["args"]],
                env=clean_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._patch(name, {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]})

    def _patch(self, name: str, status: dict[str, Any]) -> None:
        patch = ("patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        self._plane.kubectl("-n", NAMESPACE, *patch)

    def _end(self, name: str) -> None:
        program = self._programs.pop(name)
        program.terminate()
        program.wait(TIMEOUT_S)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as made:
        made.kubectl("create", "namespace", NAMESPACE)
        made.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        made.kubectl("-n", NAMESPACE, "apply", "-f", "-", given=accounts(made))
        deployment, _ = rendered()
        driver = {"metadata": {"name": DRIVER, "namespace": NAMESPACE}, "spec": deployment["spec"]["template"]["spec"]}
        made.apply({"apiVersion": "v1", "kind": "Pod", **driver})
        yield made


def accounts(plane: ControlPlane) -> str:
    """The objects that the chart renders for Spark."""
    values = ("--set", "sparkOnKubernetes.enabled=true", "--set", "quickstart.enabled=true")
    return plane.helm(
        *("template", "lake", str(REPOSITORY / "charts/bearlake"), "-n", NAMESPACE),
        *("--show-only", "templates/spark.yaml", *values),
    )


def rendered() -> tuple[dict[str, Any], dict[str, Any]]:
    """The Deployment of workers whose executors are pods, and the files next to their settings, as the operator creates them."""
    layer = operator_settings.DataLayer(settings={}, admin=operator_settings.AdminAccess(secret="admin"))
    values = operator_settings.Settings(
        image="bearlake.dev/server:test",
        compactor_image="bearlake.dev/compactor:test",
        data_layers={"default": layer},
        service_account=ACCOUNT,
        spark_service_account=ACCOUNT,
    )
    spec = {"spark": {"master": "k8s://https://kubernetes.default.svc", "executors": {"count": EXECUTOR_COUNT}}}
    parsed = api.compactor_spec({"metadata": {"namespace": "team", "name": "main"}, "spec": spec})
    made = {
        resource["kind"]: resource for resource in compactor.objects(values, parsed, namespace=NAMESPACE, replicas=1)
    }
    return made["Deployment"], made["ConfigMap"]["data"]


def spark_settings(plane: ControlPlane, folder: Path) -> SparkSettings:
    """Settings as the operator renders them, except for addresses of this machine, and the token that a pod would find."""
    _, files = rendered()
    template = folder / "executor.yaml"
    template.write_text(files["executor.yaml"])
    loaded = yaml.safe_load(files["bearlake.yaml"])["spark"]["kubernetes"]
    token = folder / "token"
    token.write_text(plane.token(NAMESPACE, ACCOUNT))
    prefix = "spark.kubernetes.authenticate"
    return SparkSettings(
        master=f"k8s://{plane.url}",
        conf=(f"{prefix}.oauthTokenFile={token}", f"{prefix}.caCertFile={plane.authority}"),
        kubernetes=SparkKubernetesSettings(
            image=loaded["image"],
            namespace=NAMESPACE,
            pod_template_file=str(template),
            executor_count=loaded["executor_count"],
            driver_host="127.0.0.1",
            bind_address="127.0.0.1",
            driver_port=0,
            block_manager_port=0,
            driver_pod=DRIVER,
        ),
        archive=False,
    )


async def test_executor_pods_compact_like_a_local_master(plane: ControlPlane, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/objects"
    store = open_store(url)
    counter = itertools.count()
    items = []
    for number in range(ITEM_COUNT):
        wal = Wal(store, keys=KeySource(SystemClock(), lambda _bits: next(counter)))
        await wal.put({0: [codec.encode([Record(value=b"%d" % at, timestamp=at) for at in range(number + 1)])]})
        items.append(wal.item())
    node = Node(plane, tmp_path)
    runner = SparkRunner(spark_settings(plane, tmp_path), url, ObjectStoreSettings(), TaskLimits())
    try:
        results = await runner.run(items)
        started = dict(node.pods)
        await asyncio.to_thread(node.fail, next(iter(started)))
        await asyncio.to_thread(until, "another pod", lambda: len(node.pods) > EXECUTOR_COUNT, TIMEOUT_S)
        again = await runner.run(items)
    finally:
        await runner.close()
        await asyncio.to_thread(until, "the executors' pods are gone", lambda: not node.present(), TIMEOUT_S)
        node.close()

    expected = await InProcess(store, workbench()).run(items)
    await store.close()
    assert [result.row_count for result in results] == [number + 1 for number in range(ITEM_COUNT)]
    assert [result.files[0].file.size for result in results] == [result.files[0].file.size for result in expected]
    assert [result.row_count for result in again] == [result.row_count for result in results]
    assert len(started) == EXECUTOR_COUNT
    for pod in started.values():
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", DRIVER, True)
        assert pod["spec"]["automountServiceAccountToken"] is False
        (container,) = pod["spec"]["containers"]
        assert container["image"] == "bearlake.dev/compactor:test"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"]["memory"] == "1536Mi"


def test_the_drivers_account_has_exactly_the_permissions_that_it_uses(plane: ControlPlane) -> None:
    """Runs after the test above. Source: the API server's audit log."""
    events = plane.audited(f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
    (role,) = [resource for resource in yaml.safe_load_all(accounts(plane)) if resource and resource["kind"] == "Role"]
    allowed = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}

    asked = {(event["objectRef"]["resource"], event["verb"]) for event in events if "objectRef" in event}
    forbidden = [event["requestURI"] for event in events if event["responseStatus"]["code"] == 403]

    assert forbidden == []
    assert asked == allowed
