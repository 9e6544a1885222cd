"""The metrics API with a real API server and a real autoscaler, without nodes: aggregation, discovery, RBAC, scaling.

The process runs under its ServiceAccount's token with what the chart gives it; pods are objects whose addresses are HTTP servers here.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bearlake_operator import settings
from bearlake_operator.api import CompactorScaling
from bearlake_operator.manifests import labels, scaling
from bearlake_operator.settings import AdminAccess, Autoscaling, ScalingMode
from fixtures.control_plane import ControlPlane, control_plane
from fixtures.kubernetes import REPOSITORY, STATE, until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

NAMESPACE = "lake"
NAME = "bl-metrics-api"
KAFKA = labels.selector("default", "kafka")
WORKER = labels.compactor_selector("default", "c")
CUSTOM = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/pods/*/bearlake_requests_per_second"
EXTERNAL = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/bearlake_compaction_backlog_bytes"
READY_S = 60
DECIDED_S = 60
PODS = {"a": ("127.0.0.2", KAFKA), "b": ("127.0.0.3", KAFKA), "w": ("127.0.0.4", WORKER)}


class Pods:
    """Servers at the pods' addresses. Their request counters grow by `per_second`, and `backlog_bytes` is their backlog."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.per_second = 0
        self.backlog_bytes = 0
        self._count = 0.0
        self._at_s = time.monotonic()
        self._lock = threading.Lock()
        pods = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = pods.answer(self.path).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                return

        self.port = 0
        for address, _ in PODS.values():
            server = stack.enter_context(ThreadingHTTPServer((address, self.port), Handler))
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            stack.callback(server.shutdown)

    def answer(self, path: str) -> str:
        if path.startswith("/v1/compaction/backlog"):
            return json.dumps({"size_bytes": self.backlog_bytes})
        with self._lock:
            now_s = time.monotonic()
            self._count += (now_s - self._at_s) * self.per_second / 2  # two pods share the count
            self._at_s = now_s
            return f"bearlake_kafka_requests_total {self._count}\n"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, certificates: dict[str, Path]) -> Iterator[SimpleNamespace]:
    folder = tmp_path_factory.mktemp("metrics-api")
    (folder / "plane").mkdir()
    flags = [
        f"--requestheader-client-ca-file={certificates['authority']}",
        "--requestheader-allowed-names=alice",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificates['client']}",
        f"--proxy-client-key-file={certificates['client_key']}",
    ]
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(control_plane(folder / "plane", *flags))
        pods = Pods(stack)
        services = install(plane, folder)
        port = stack.enter_context(metrics_api(plane, folder, pods.port))
        for service in services:
            service["spec"]["service"]["port"] = port
            plane.apply(service)
        stack.enter_context(autoscaling(plane, folder))
        yield SimpleNamespace(plane=plane, pods=pods)


def install(plane: ControlPlane, folder: Path) -> list[dict[str, Any]]:
    """Apply the chart's objects of the metrics API without its pods; returns the APIServices."""
    values = "quickstart.enabled=true,crds.install=false,metricsApi.enabled=true"
    text = plane.helm("template", "bl", str(REPOSITORY / "charts/bearlake"), "-n", NAMESPACE, "--set", values)
    found = {
        (resource["kind"], resource["metadata"]["name"]): resource for resource in yaml.safe_load_all(text) if resource
    }
    plane.kubectl("create", "namespace", NAMESPACE)
    for (kind, name), resource in found.items():
        if NAME in name and kind in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole"):
            plane.kubectl(
                "-n", resource["metadata"].get("namespace", NAMESPACE), "apply", "-f", "-", given=json.dumps(resource)
            )
    # There is no pod network: the Service is an alias of this machine.
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
    )
    (folder / "certificates").mkdir()
    for file in ("tls.crt", "tls.key"):
        (folder / "certificates" / file).write_bytes(base64.b64decode(found["Secret", NAME]["data"][file]))
    (folder / "operator.yaml").write_text(found["ConfigMap", "bl-operator"]["data"]["operator.yaml"])
    assert settings.load(folder / "operator.yaml").data_layers["default"]
    (folder / "tokens/default").mkdir(parents=True)
    (folder / "tokens/default/token").write_text("any")
    return [resource for (kind, _), resource in found.items() if kind == "APIService"]


@contextlib.contextmanager
def metrics_api(plane: ControlPlane, folder: Path, admin_port: int) -> Iterator[int]:
    """Start the metrics API; returns its port."""
    (folder / "token").write_text(plane.token(NAMESPACE, NAME))
    kubeconfig = plane.kubeconfig(folder / "kubeconfig", NAMESPACE, folder / "token")
    words = [
        *("--settings", folder / "operator.yaml", "--tokens", folder / "tokens"),
        *("--certificates", folder / "certificates", "--host", "127.0.0.1", "--port", 0, "--probe-port", 0),
        *("--admin-port", admin_port, "--period-seconds", 0.5, "--window-seconds", 2),
    ]
    log = folder / "metrics-api.log"
    command = [sys.executable, "-m", "bearlake_operator.metrics_api", *map(str, words)]
    with log.open("wb") as out, started(command, out, {"KUBECONFIG": str(kubeconfig)}):

        def port() -> int:
            lines = [json.loads(line) for line in log.read_text().splitlines() if '"port"' in line]
            return int(lines[0]["port"]) if lines else 0

        yield until(f"a port in {log}", port, READY_S)


@contextlib.contextmanager
def autoscaling(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Kubernetes' controller manager with the HorizontalPodAutoscaler controller only."""
    command = [
        *(str(STATE / "bin/kube"), "controller-manager", f"--kubeconfig={plane.environment['KUBECONFIG']}"),
        *("--controllers=horizontal-pod-autoscaler-controller", "--leader-elect=false", "--secure-port=0"),
        "--horizontal-pod-autoscaler-sync-period=1s",
    ]
    with (folder / "controller.log").open("wb") as out, started(command, out, {}):
        yield


@contextlib.contextmanager
def started(command: list[str], out: Any, environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **environment}
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def tiers(scene: SimpleNamespace) -> SimpleNamespace:
    """Pods of two servers and a worker without processes, with the operator's autoscalers."""
    for name, (address, marks) in PODS.items():
        pod(scene.plane, name, address, marks)
    for name, marks, count in (("kafka", KAFKA, 2), ("c", WORKER, 1)):
        deployment(scene.plane, name, marks, count)
    values = Autoscaling(mode=ScalingMode.BUILTIN, target_requests_per_second=100, max_replicas=3, scale_down_seconds=0)
    workers = CompactorScaling(min_replicas=1, max_replicas=4, target_backlog_bytes=1000, target_cpu_percent=70)
    for resource in (
        scaling.for_tier("kafka", values, KAFKA),
        *scaling.for_compactor("c", "c.lake.svc", workers, values, AdminAccess(secret="any"), WORKER),
    ):
        scene.plane.apply({**resource, "metadata": {**resource["metadata"], "namespace": NAMESPACE}})
    return scene


def pod(plane: ControlPlane, name: str, address: str, marks: Any) -> None:
    spec = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "i"}],
    }
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels.managed(marks)}
    plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}
    patch_status(plane, "pod", name, status)


def deployment(plane: ControlPlane, name: str, marks: Any, count: int) -> None:
    template = {"metadata": {"labels": dict(marks)}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": count, "selector": {"matchLabels": dict(marks)}, "template": template}
    metadata = {"name": name, "namespace": NAMESPACE}
    plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    patch_status(plane, "deployment", name, {"replicas": count, "readyReplicas": count})


def patch_status(plane: ControlPlane, kind: str, name: str, status: dict[str, Any]) -> None:
    words = ("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    plane.kubectl("-n", NAMESPACE, *words)


def items(scene: SimpleNamespace, path: str, *more: str) -> list[dict[str, Any]]:
    text = scene.plane.kubectl(*more, "get", "--raw", path, is_checked=False)
    found: list[dict[str, Any]] = json.loads(text)["items"] if text.startswith("{") else []
    return found


def wanted(scene: SimpleNamespace, name: str) -> int:
    return int(scene.plane.get("horizontalpodautoscaler", name, NAMESPACE).get("status", {}).get("desiredReplicas", 0))


def test_the_api_services_are_available_and_discoverable(tiers: SimpleNamespace) -> None:
    def are_available() -> bool:
        found = json.loads(tiers.plane.kubectl("get", "apiservices", "-o", "json"))["items"]
        ours = [resource["status"] for resource in found if resource["metadata"]["name"].endswith(".metrics.k8s.io")]
        return [status["conditions"][0]["status"] for status in ours if "conditions" in status] == ["True", "True"]

    until("both APIs are available", are_available, READY_S)
    shown = tiers.plane.kubectl("api-resources", "--api-group=external.metrics.k8s.io", "-o", "name")
    assert shown.split() == ["bearlake_compaction_backlog_bytes.external.metrics.k8s.io"]
    legacy = json.loads(tiers.plane.kubectl("get", "--raw", "/apis/custom.metrics.k8s.io/v1beta2"))
    assert [resource["name"] for resource in legacy["resources"]] == [
        "pods/bearlake_requests_per_second",
        "pods/bearlake_bytes_per_second",
    ]


def test_rbac_denies_users_without_permission(tiers: SimpleNamespace) -> None:
    until("there are values", lambda: len(items(tiers, CUSTOM)) == 2, READY_S)
    complaint = tiers.plane.kubectl("--as=nobody", "get", "--raw", CUSTOM, is_checked=False)

    assert 'User "nobody" cannot get resource "pods/bearlake_requests_per_second"' in complaint


def test_servers_scale_by_load_and_workers_by_backlog(tiers: SimpleNamespace) -> None:
    tiers.pods.per_second, tiers.pods.backlog_bytes = 400, 10
    until("more servers are wanted", lambda: wanted(tiers, "kafka") == 3, DECIDED_S)
    assert wanted(tiers, "c") == 1

    tiers.pods.per_second, tiers.pods.backlog_bytes = 1, 3500
    until("more workers are wanted", lambda: wanted(tiers, "c") == 4, DECIDED_S)
    until("fewer servers are wanted", lambda: wanted(tiers, "kafka") == 2, 150)

    (item,) = items(tiers, EXTERNAL)
    assert item["value"] == "3500"


def test_the_metrics_apis_account_has_exactly_the_permissions_that_it_uses(tiers: SimpleNamespace) -> None:
    asked = tiers.plane.audited(f"system:serviceaccount:{NAMESPACE}:{NAME}")

    assert {event["responseStatus"]["code"] for event in asked} == {200}
    used = {(event["verb"], event["objectRef"]["resource"], event["objectRef"]["namespace"]) for event in asked}
    assert used == {("list", "pods", NAMESPACE), ("get", "configmaps", "kube-system")}
