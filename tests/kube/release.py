"""A release of the chart on a cluster, managed with helm and kubectl only, and its addresses.

release = Release(cluster, [VALUES, VALUES_STORES])
release.install()
release.serve("orders", partitions=3, protocols=["kafka", "rest"])
release.outside("kafka")              # host:port of every node
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.kubernetes import REPOSITORY, Cluster, until

FOLDER = Path(__file__).parent
VALUES = FOLDER / "values.yaml"
VALUES_STORES = FOLDER / "values-stores.yaml"
VALUES_FAULTS = FOLDER / "values-faults.yaml"
CHART = str(REPOSITORY / "charts/bearlake")
NAMESPACE = "lake"
PROTOCOLS = ("kafka", "pulsar", "rest", "grpc")
NODE_PORTS = {"kafka": 30094, "pulsar": 30660, "rest": 30082, "grpc": 30051}
READY_S = 300
ROLLOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod and its state."""

    name: str
    uid: str
    node: str
    address: str
    is_ready: bool
    is_leaving: bool
    restart_count: int


class Release:
    """One release of the chart, named `bl`, in the namespace `lake`."""

    def __init__(self, cluster: Cluster, values: Sequence[Path]) -> None:
        self.cluster = cluster
        self._values = [word for path in values for word in ("-f", str(path))]

    # -- helm ----------------------------------------------------------------------------------------------------

    def install(self) -> float:
        """Install; returns the seconds until the operator is ready."""
        return self._helm("install", "bl", CHART, *self._values, "--wait", "--timeout", "5m")

    def upgrade(self, *changes: str) -> None:
        """Upgrade with the values of the installation and `changes` (`path=value`)."""
        self._helm("upgrade", "bl", CHART, *self._values, *(word for change in changes for word in ("--set", change)))

    def rollback(self, revision: int) -> None:
        """Roll back to a revision; the first is 1."""
        self._helm("rollback", "bl", str(revision))

    def uninstall(self) -> None:
        """Uninstall, and wait until all pods of the release are gone."""
        self._helm("uninstall", "bl", "--wait", "--timeout", "3m")
        until("the release's pods are gone", lambda: not self.cluster.listed("pods", NAMESPACE), 120)

    def _helm(self, *words: str) -> float:
        started_s = time.monotonic()
        self.cluster.helm(*words, "-n", NAMESPACE)
        return round(time.monotonic() - started_s, 1)

    # -- resources -----------------------------------------------------------------------------------------------

    def serve(self, name: str, /, **spec: Any) -> float:
        """Create a Stream; returns the seconds until it is Ready."""
        started_s = time.monotonic()
        self.cluster.apply(stream(name, **spec))
        self.wait("stream", name)
        return round(time.monotonic() - started_s, 1)

    def compact(self, replicas: int = 1) -> float:
        """Create the Compactor `main` for all streams; returns the seconds until it is Ready."""
        started_s = time.monotonic()
        resource = {"apiVersion": "bearlake.dev/v1alpha1", "kind": "Compactor", "metadata": {"name": "main"}}
        self.cluster.apply({**resource, "spec": {"replicas": replicas}})
        self.wait("compactor", "main")
        return round(time.monotonic() - started_s, 1)

    def wait(self, kind: str, name: str) -> None:
        """Wait until the resource is Ready."""
        self.cluster.kubectl("wait", f"{kind}/{name}", "--for=condition=Ready", f"--timeout={READY_S}s")

    # -- pods ----------------------------------------------------------------------------------------------------

    def deployment(self, tier: str) -> Mapping[str, Any]:
        """The Deployment of a tier (`kafka` …, `compactor`); {} if there is none."""
        found = self.cluster.listed("deployments", NAMESPACE, f"app.kubernetes.io/component={tier}")
        return found[0] if found else {}

    def pods(self, tier: str) -> list[Pod]:
        """The pods of a tier, or of `operator`."""
        return [_pod(pod) for pod in self.cluster.listed("pods", NAMESPACE, f"app.kubernetes.io/component={tier}")]

    def wait_until_rolled_out(self, tier: str) -> None:
        """Wait until all pods of the tier are new and ready, and the old ones are gone."""

        def is_rolled_out() -> bool:
            found, pods = self.deployment(tier), self.pods(tier)
            status, wanted = found["status"], found["spec"]["replicas"]
            is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
            is_new = status.get("updatedReplicas") == status.get("availableReplicas") == wanted == len(pods)
            return is_seen and is_new and all(pod.is_ready for pod in pods)

        until(f"the tier {tier} is rolled out", is_rolled_out, ROLLOUT_S)

    def spread(self, tier: str) -> None:
        """Wait until the two or more pods of the tier run on more than one node."""

        def is_spread() -> bool:
            pods = [pod for pod in self.pods(tier) if not pod.is_leaving]
            return len({pod.node for pod in pods}) > 1

        if not is_spread():
            self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", self.pods(tier)[0].name, "--timeout=180s")
            self.wait_until_rolled_out(tier)
            until(f"the tier {tier} is on several nodes", is_spread, ROLLOUT_S)

    # -- addresses -----------------------------------------------------------------------------------------------

    def outside(self, protocol: str) -> list[str]:
        """`host:port` of the protocol's node port on every node."""
        return [f"{address}:{NODE_PORTS[protocol]}" for address in self.cluster.node_addresses()]

    def inside(self, protocol: str, port: int) -> str:
        """`host:port` of the protocol's Service, with its cluster IP."""
        service = self.cluster.get("service", f"bearlake-default-{protocol}", NAMESPACE)
        return f"{service['spec']['clusterIP']}:{port}"


def stream(name: str, /, **spec: Any) -> dict[str, Any]:
    """The resource of a Stream."""
    return {"apiVersion": "bearlake.dev/v1alpha1", "kind": "Stream", "metadata": {"name": name}, "spec": spec}


def clean_namespace(cluster: Cluster) -> None:
    """An empty namespace for the release, with restricted pods, and no Streams of an earlier test anywhere."""
    # First delete objects outside of the namespace: an APIService without pods would block the deletion of every namespace.
    cluster.helm(
        "uninstall", "bl", "-n", NAMESPACE, "--ignore-not-found", "--wait", "--timeout", "3m", is_checked=False
    )
    kinds = "streams,compactors"
    cluster.kubectl("delete", kinds, "--all", "-A", "--ignore-not-found", "--timeout=60s", is_checked=False)
    empty_namespace(cluster, NAMESPACE)


def empty_namespace(cluster: Cluster, name: str) -> None:
    """The namespace, created again."""
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s")
    cluster.kubectl("create", "namespace", name)
    if name == NAMESPACE:
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")


def _pod(found: Mapping[str, Any]) -> Pod:
    status, metadata = found["status"], found["metadata"]
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        node=found["spec"].get("nodeName", ""),
        address=status.get("podIP", ""),
        is_ready=conditions.get("Ready") == "True",
        is_leaving="deletionTimestamp" in metadata,
        restart_count=sum(status_["restartCount"] for status_ in status.get("containerStatuses", [])),
    )
