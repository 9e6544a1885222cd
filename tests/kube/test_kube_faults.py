"""A drained node, and pods that are killed at random, under load of all four protocols.

Runs by `make test-kube`. BEARLAKE_TEST_KUBE_KILL_S (default 60) is the duration of the kills; the report uses 600.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.waiting import pause
from fixtures.kubernetes import Cluster, until
from kube.loads import Loads, figures
from kube.release import NAMESPACE, PROTOCOLS, VALUES, VALUES_FAULTS, VALUES_STORES, Pod, Release
from kube.stores import stores_node

KILL_S = float(os.environ.get("BEARLAKE_TEST_KUBE_KILL_S", "60"))
PAUSE_S = (2.0, 6.0)
"""Pause between two kills, after the tier has a ready pod again."""
RESTARTS_MAX = 2
"""Crashes of one pod's process. Before a further restart, the kubelet would wait 40 s, then twice as long each time."""
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1200 + 2 * KILL_S)]

Note = Callable[[str, object], None]
PARTITION_COUNT = 4
TIERS = (*PROTOCOLS, "compactor")
VICTIMS = (*TIERS, "operator")
KILL_SERVER = """
import os, pathlib, signal
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    words = path.read_bytes().split(b"\\0")
    if b"serve" in words and path.parent.name != str(os.getpid()):
        os.kill(int(path.parent.name), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def release(stores: Cluster) -> Release:
    found = Release(stores, [VALUES, VALUES_STORES, VALUES_FAULTS])
    found.install()
    for name in ("drained", "killed"):
        found.serve(name, partitions=PARTITION_COUNT, protocols=list(PROTOCOLS))
    found.compact()
    for tier in TIERS:
        found.wait_until_rolled_out(tier)
    return found


def test_a_node_is_drained_and_no_request_fails(release: Release, tmp_path: Path, note: Note) -> None:
    cluster = release.cluster
    nodes = {node["metadata"]["name"] for node in cluster.listed("nodes", NAMESPACE)}
    node = min(nodes - {stores_node(cluster)})
    moved = {pod.name for tier in VICTIMS for pod in release.pods(tier) if pod.node == node}
    assert moved
    try:
        with Loads(release, "drained", partition_count=PARTITION_COUNT, folder=tmp_path) as loads:
            started_s = time.monotonic()
            cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
            drained_s = round(time.monotonic() - started_s, 1)
            for tier in TIERS:
                release.wait_until_rolled_out(tier)
            loads.advance()
            counts = loads.finish()
    finally:
        cluster.kubectl("uncordon", node)

    note("drain", {"seconds": drained_s, "moved_pods": len(moved), **figures(loads, counts)})
    assert node not in {pod.node for tier in TIERS for pod in release.pods(tier)}
    counts.assert_exact()
    assert not loads.failed()
    assert not counts.unknown


def test_killed_pods_of_every_tier_lose_nothing(release: Release, tmp_path: Path, note: Note) -> None:
    choose = random.Random(7)
    killed: Counter[str] = Counter()
    for (
        tier
    ) in PROTOCOLS:  # a node without a pod of the tier closes its node port, and clients bootstrap from both nodes
        release.spread(tier)
    with Loads(release, "killed", partition_count=PARTITION_COUNT, folder=tmp_path) as loads:
        end_s = time.monotonic() + KILL_S
        while time.monotonic() < end_s or set(VICTIMS) - set(killed):
            rest = sorted(set(VICTIMS) - set(killed)) or VICTIMS
            tier = choose.choice(rest)
            kill(release, choose.choice(has_ready(release, tier)), tier, choose)
            killed[tier] += 1
            pause(choose.uniform(*PAUSE_S))
        for tier in TIERS:
            release.wait_until_rolled_out(tier)
        resumed_s = round(loads.advance(), 1)
        counts = loads.finish()

    note("kills", {"seconds": KILL_S, "kills": dict(killed), "resumed_s": resumed_s, **figures(loads, counts)})
    counts.assert_exact()
    assert not loads.kafka.failed
    assert not loads.pulsar.failed
    assert not loads.kafka.unknown
    assert not loads.pulsar.unknown


def has_ready(release: Release, tier: str) -> list[Pod]:
    """The pods of a tier, if more than one is ready."""

    def ready() -> list[Pod]:
        pods = [pod for pod in release.pods(tier) if pod.is_ready and not pod.is_leaving]
        return pods if len(pods) > 1 or tier in ("compactor", "operator") else []

    found: list[Pod] = until(f"a pod of {tier} that may be killed", ready, 300)
    return found


def kill(release: Release, pod: Pod, tier: str, choose: random.Random) -> None:
    """Kill the process, so that the container restarts in its pod, or delete the pod."""
    if tier != "operator" and pod.restart_count < RESTARTS_MAX and choose.random() < 0.5:
        command = ("exec", pod.name, "-c", "bearlake", "--", "python", "-c", KILL_SERVER)
        release.cluster.kubectl(
            "-n", NAMESPACE, *command, is_checked=False
        )  # kubectl exec fails when its container is killed

        def is_dead() -> bool:
            return all(now.restart_count > pod.restart_count for now in release.pods(tier) if now.uid == pod.uid)

        until(f"the server of {pod.name} is killed", is_dead, 60)
    else:
        delete = ("delete", "pod", pod.name, "--grace-period=0", "--force")
        release.cluster.kubectl("-n", NAMESPACE, *delete)
