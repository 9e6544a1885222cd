"""Planned changes under load of all four protocols: no request fails, no record is lost, and data survives the release.

Runs by `make test-kube`; the tests build on each other in file order.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from faults.load import read_log
from fixtures.kubernetes import Cluster, until
from kube.loads import Loads, figures
from kube.release import NAMESPACE, PROTOCOLS, VALUES, VALUES_STORES, Release

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

Note = Callable[[str, object], None]
PARTITION_COUNT = 4
TIERS = (*PROTOCOLS, "compactor")
KEPT = "kept"
COMPONENT = "app.kubernetes.io/component="
NEXT_IMAGES = ("image.tag=next", "compactorImage.tag=next", "operator.image.tag=next")


@pytest.fixture(scope="module")
def release(stores: Cluster) -> Release:
    """The release with a Stream for every protocol, and a worker."""
    found = Release(stores, [VALUES, VALUES_STORES])
    found.install()
    found.serve(KEPT, partitions=PARTITION_COUNT, protocols=list(PROTOCOLS))
    found.compact()
    for tier in TIERS:
        found.wait_until_rolled_out(tier)
    return found


def uids(release: Release) -> dict[str, set[str]]:
    return {tier: {pod.uid for pod in release.pods(tier)} for tier in TIERS}


def changed(before: dict[str, set[str]], after: dict[str, set[str]]) -> dict[str, str]:
    """Whether all, some or none of the pods are new, by tier."""
    return {
        tier: "none" if after[tier] == old else "some" if after[tier] & old else "all" for tier, old in before.items()
    }


def images(release: Release) -> set[str]:
    """The image tags of the tiers and the operator."""
    pods = [pod for tier in (*TIERS, "operator") for pod in release.cluster.listed("pods", NAMESPACE, COMPONENT + tier)]
    return {container["image"].rpartition(":")[2] for pod in pods for container in pod["spec"]["containers"]}


def roll(release: Release, *changes: str) -> dict[str, float]:
    """Change values, and wait until the affected tiers are replaced; returns the seconds by tier."""
    generations = {tier: release.deployment(tier)["metadata"]["generation"] for tier in TIERS}
    started_s = time.monotonic()
    release.upgrade(*changes)
    return rolled_out(release, generations, started_s)


def rolled_out(release: Release, generations: dict[str, int], started_s: float) -> dict[str, float]:
    def concerned() -> set[str]:
        return {tier for tier, old in generations.items() if release.deployment(tier)["metadata"]["generation"] > old}

    until("a tier is changed", concerned, 120)
    seconds = {}
    for tier in TIERS:
        if tier in concerned():
            release.wait_until_rolled_out(tier)
            seconds[tier] = round(time.monotonic() - started_s, 1)
    return seconds


def test_a_change_of_a_tiers_settings_restarts_only_its_pods(release: Release, tmp_path: Path, note: Note) -> None:
    release.serve("one-tier", partitions=PARTITION_COUNT, protocols=list(PROTOCOLS))
    before = uids(release)
    with Loads(release, "one-tier", partition_count=PARTITION_COUNT, folder=tmp_path) as loads:
        seconds = roll(release, "dataLayers.default.tiers.kafka.settings.kafka.idle_ms=500000")
        loads.advance()
        counts = loads.finish()

    note("one_tier_upgrade", {"seconds": seconds, **figures(loads, counts)})
    assert changed(before, uids(release)) == {tier: "all" if tier == "kafka" else "none" for tier in TIERS}
    counts.assert_exact()
    assert not loads.failed()


def test_an_upgrade_of_every_image_fails_no_request_and_loses_nothing(
    release: Release, tmp_path: Path, note: Note
) -> None:
    release.serve("every-tier", partitions=PARTITION_COUNT, protocols=list(PROTOCOLS))
    before = uids(release)
    with Loads(release, "every-tier", partition_count=PARTITION_COUNT, folder=tmp_path) as loads:
        seconds = roll(release, *NEXT_IMAGES)
        loads.advance()
        counts = loads.finish()

    until("all that runs is of the new images", lambda: images(release) == {"next"}, 60)
    note("rolling_upgrade", {"seconds": seconds, **figures(loads, counts)})
    assert changed(before, uids(release)) == dict.fromkeys(TIERS, "all")
    counts.assert_exact()
    assert not loads.failed()
    assert not counts.unknown


def test_a_rollback_restores_the_old_images_and_settings(release: Release, note: Note) -> None:
    generations = {tier: release.deployment(tier)["metadata"]["generation"] for tier in TIERS}
    started_s = time.monotonic()

    release.rollback(1)

    seconds = rolled_out(release, generations, started_s)
    note("rollback_s", max(seconds.values()))
    assert set(seconds) == set(TIERS)
    until("all that runs is of the old images", lambda: images(release) == {"test"}, 60)
    for tier in TIERS:
        settings = release.deployment(tier)["spec"]["template"]["spec"]["volumes"]
        (name,) = [setting["configMap"]["name"] for setting in settings if setting["name"] == "settings"]
        found = release.cluster.get("configmap", name, NAMESPACE)["data"]
        assert "idle_ms" not in "".join(found.values())


def test_data_survives_uninstalling_and_reinstalling_the_release(release: Release, note: Note) -> None:
    bootstrap = ",".join(release.outside("kafka"))
    before = read_log(bootstrap, "every-tier", PARTITION_COUNT)
    stream_id = release.cluster.get("stream", "every-tier")["status"]["streamId"]

    release.uninstall()

    assert release.cluster.get("stream", "every-tier")
    note("install_again_s", release.install())
    started_s = time.monotonic()
    for tier in PROTOCOLS:
        until(f"there is a tier {tier}", partial(release.deployment, tier), 60)
        release.wait_until_rolled_out(tier)
    release.wait("stream", "every-tier")
    note("streams_ready_again_s", round(time.monotonic() - started_s, 1))
    assert release.cluster.get("stream", "every-tier")["status"]["streamId"] == stream_id
    after = read_log(bootstrap, "every-tier", PARTITION_COUNT)
    assert {at: [(r.offset, r.name) for r in reads] for at, reads in after.items()} == {
        at: [(r.offset, r.name) for r in reads] for at, reads in before.items()
    }
    assert sum(map(len, after.values())) > 0
