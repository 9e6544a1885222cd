"""The operator's process: it acts only when it leads and has the namespace, and outlives what goes wrong in one of its workers."""

import asyncio
import os
import signal

import pytest

from bearlake_operator.controllers import owner_references, reconcile_loop, resync
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.leader_election import LeaderElector
from bearlake_operator.controllers.process import Operator
from bearlake_operator.controllers.reconcile_loop import ReconcileLoop
from bearlake_operator.controllers.resync import MISSED_ROUND_COUNT_MAX, Resync, WatchFailed
from bearlake_operator.errors import Conflict, Invalid, Unavailable
from bearlake_operator.kube import KubeClient
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.settings import AdminAccess, DataLayer, Settings


@pytest.fixture
async def kube(cluster):
    opened = KubeClient(ClientConfig(server=cluster.url, namespace="lake"))
    yield opened
    await opened.close()


def deployment(name, uid, **metadata):
    return {"kind": "Deployment", "metadata": {"namespace": "lake", "name": name, "uid": uid, **metadata}, "spec": {}}


def owned_by(name, uid):
    return {"ownerReferences": [{"kind": "Deployment", "name": name, "uid": uid}]}


# A namespace has one operator.


async def test_what_another_operator_owns_is_not_touched(cluster, kube):
    own, other = deployment("own-operator", "1"), deployment("other-operator", "2")
    cluster.add(own, other, deployment("bearlake-default-kafka", "3", **owned_by("other-operator", "2")))
    cache = ResourceCache()
    await Resync(kube, cache, (), 60).list_all()

    with pytest.raises(Conflict, match=r"namespace lake .* other-operator"):
        await owner_references.check_sole_operator(kube, cache, await owner_references.find_owner(kube, "own-operator"))


@pytest.mark.parametrize("uid", ["1", "of a Deployment that has gone"])
async def test_what_is_left_of_an_operator_that_has_gone_is_taken_over(cluster, kube, uid):
    cluster.add(deployment("operator", "1"), deployment("bearlake-default-kafka", "3", **owned_by("operator", uid)))
    cache = ResourceCache()
    await Resync(kube, cache, (), 60).list_all()

    await owner_references.check_sole_operator(kube, cache, await owner_references.find_owner(kube, "operator"))

    with pytest.raises(Invalid, match=r"Deployment nobody .* lake"):
        await owner_references.find_owner(kube, "nobody")


def operator_of(cluster):
    layer = DataLayer(settings={}, admin=AdminAccess(secret="token"))
    settings = Settings(image="server", compactor_image="compactor", data_layers={"default": layer})
    return Operator(settings, ClientConfig(server=cluster.url, namespace="lake"), host="127.0.0.1", port=0)


async def test_a_process_that_stands_by_ends_when_it_is_asked_to(cluster, monkeypatch):
    standing_by = asyncio.Event()

    async def acquire(self):
        standing_by.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(LeaderElector, "acquire", acquire)
    running = asyncio.ensure_future(operator_of(cluster).run())
    await standing_by.wait()

    os.kill(os.getpid(), signal.SIGTERM)

    assert await running is None


async def test_a_process_that_fails_to_get_the_lease_does_nothing_else(cluster, monkeypatch):
    async def acquire(self):
        raise OSError("no token")

    listed = []

    async def first(self):
        listed.append(True)

    monkeypatch.setattr(LeaderElector, "acquire", acquire)
    monkeypatch.setattr(Resync, "list_all", first)

    with pytest.raises(ExceptionGroup) as failure:
        await operator_of(cluster).run()

    assert failure.group_contains(OSError, match="no token")
    assert not listed


# Lists and watches.


async def test_without_their_definition_streams_are_unknown_and_not_none(kube, cluster):
    """An empty list would be that of a cluster whose Streams have all gone, and all tiers with them."""
    cluster.refuse[("GET", "/streams")] = 404

    with pytest.raises(Invalid, match="refused with 404"):
        await Resync(kube, ResourceCache(), (), 60).list_all()


@pytest.fixture
def no_grace(monkeypatch):
    monkeypatch.setattr(resync, "GRACE_S", 0)


async def test_a_watch_that_misses_changes_again_and_again_is_dead(kube, cluster, no_grace):
    cache = ResourceCache()
    found = Resync(kube, cache, (), 60)
    await found.list_all()

    for number in range(1, MISSED_ROUND_COUNT_MAX):
        cluster.add(deployment(f"new-{number}", str(number)))
        await found.resync()

    cluster.add(deployment("new", "1"))
    with pytest.raises(WatchFailed, match="watch of Deployment"):
        await found.resync()


async def test_kinds_that_nobody_watches_are_found_by_listing_and_mean_no_dead_watch(kube, cluster, no_grace):
    """KEDA writes the time of its last activity into the status of a ScaledObject all the time."""
    cache = ResourceCache()
    found = Resync(kube, cache, (), 60)
    await found.list_all()

    for number in range(MISSED_ROUND_COUNT_MAX + 1):
        scaled = {"metadata": {"namespace": "lake", "name": "one"}, "status": {"lastActiveTime": str(number)}}
        cluster.add({"kind": "ScaledObject", **scaled})
        await found.resync()

    assert cache.get("ScaledObject", "lake", "one")["status"]["lastActiveTime"] == str(MISSED_ROUND_COUNT_MAX)


# Workers.


@pytest.mark.parametrize("failure", [KeyError("an answer without a field"), Unavailable("nobody answers")])
async def test_a_worker_goes_on_after_whatever_failed(failure, monkeypatch):
    naps, done = [], asyncio.Event()
    nap = asyncio.sleep

    async def noted(seconds):
        naps.append(seconds)
        await nap(0)

    async def work():
        if len(naps) < 2:
            raise failure
        done.set()
        return 60

    worker = ReconcileLoop("test", work)
    monkeypatch.setattr(reconcile_loop.asyncio, "sleep", noted)
    worker.wake("Stream", {})
    running = asyncio.ensure_future(worker.run())
    while not done.is_set():
        worker.wake("Stream", {})
        await nap(0)
    running.cancel()
    await asyncio.wait({running})

    assert naps[0] == reconcile_loop.RETRY_FIRST_S
    assert running.cancelled()
