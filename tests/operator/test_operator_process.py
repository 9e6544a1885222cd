"""The operator's process: it acts only as the leader and sole operator of its namespace, and survives failures of a controller."""

import asyncio
import os
import signal

import pytest

from bearlake.owned_tasks import TaskDied
from bearlake_operator.controllers import owner_references, reconcile_loop, resync, watches
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


# One operator per namespace.


async def test_objects_of_another_operator_are_a_conflict(cluster, kube):
    own, other = deployment("own-operator", "1"), deployment("other-operator", "2")
    cluster.add(own, other, deployment("bearlake-default-kafka", "3", **owned_by("other-operator", "2")))
    cache = ResourceCache()
    await Resync(kube, cache, (), 60).list_all()

    with pytest.raises(Conflict, match=r"namespace lake .* other-operator"):
        await owner_references.check_sole_operator(kube, cache, await owner_references.find_owner(kube, "own-operator"))


@pytest.mark.parametrize("uid", ["1", "of a Deployment that has gone"])
async def test_objects_of_a_deleted_operator_are_taken_over(cluster, kube, uid):
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


async def test_a_standby_process_stops_at_sigterm(cluster, monkeypatch):
    standing_by = asyncio.Event()

    async def acquire(self):
        standing_by.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(LeaderElector, "acquire", acquire)
    running = asyncio.ensure_future(operator_of(cluster).run())
    await standing_by.wait()

    os.kill(os.getpid(), signal.SIGTERM)

    assert await running is None


async def test_a_process_that_fails_to_acquire_the_lease_does_nothing_else(cluster, monkeypatch):
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


async def test_a_control_loop_that_ends_as_cancelled_ends_the_process(cluster, monkeypatch):
    async def forever(*_):
        await asyncio.Event().wait()

    async def acquired(self):
        return

    async def ended_as_cancelled(self):
        raise asyncio.CancelledError

    monkeypatch.setattr(LeaderElector, "acquire", acquired)
    monkeypatch.setattr(LeaderElector, "renew", forever)
    monkeypatch.setattr(watches, "run", forever)
    monkeypatch.setattr(ReconcileLoop, "run", forever)
    monkeypatch.setattr(Resync, "list_all", acquired)
    monkeypatch.setattr(Resync, "run", ended_as_cancelled)

    with pytest.raises(ExceptionGroup) as failure:
        async with asyncio.timeout(10):
            await operator_of(cluster).run()

    assert failure.group_contains(TaskDied, match="'resync'")


# Lists and watches.


async def test_a_missing_crd_is_an_error_rather_than_an_empty_list(kube, cluster):
    """An empty list would mean that all Streams were deleted, and delete all tiers."""
    cluster.refuse[("GET", "/streams")] = 404

    with pytest.raises(Invalid, match="404"):
        await Resync(kube, ResourceCache(), (), 60).list_all()


@pytest.fixture
def no_grace(monkeypatch):
    monkeypatch.setattr(resync, "GRACE_S", 0)


async def test_a_watch_that_misses_changes_repeatedly_has_failed(kube, cluster, no_grace):
    cache = ResourceCache()
    found = Resync(kube, cache, (), 60)
    await found.list_all()

    for number in range(1, MISSED_ROUND_COUNT_MAX):
        cluster.add(deployment(f"new-{number}", str(number)))
        await found.resync()

    cluster.add(deployment("new", "1"))
    with pytest.raises(WatchFailed, match="watch of Deployment"):
        await found.resync()


async def test_changes_of_unwatched_kinds_do_not_mean_a_failed_watch(kube, cluster, no_grace):
    """KEDA updates the time of the last activity in the status of a ScaledObject continuously."""
    cache = ResourceCache()
    found = Resync(kube, cache, (), 60)
    await found.list_all()

    for number in range(MISSED_ROUND_COUNT_MAX + 1):
        scaled = {"metadata": {"namespace": "lake", "name": "one"}, "status": {"lastActiveTime": str(number)}}
        cluster.add({"kind": "ScaledObject", **scaled})
        await found.resync()

    assert cache.get("ScaledObject", "lake", "one")["status"]["lastActiveTime"] == str(MISSED_ROUND_COUNT_MAX)


# Reconcile loop.


@pytest.mark.parametrize("failure", [KeyError("an answer without a field"), Unavailable("no answer")])
async def test_a_reconcile_loop_continues_after_any_failure(failure, monkeypatch):
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

    loop = ReconcileLoop("test", work)
    monkeypatch.setattr(reconcile_loop.asyncio, "sleep", noted)
    loop.wake("Stream", {})
    running = asyncio.ensure_future(loop.run())
    while not done.is_set():
        loop.wake("Stream", {})
        await nap(0)
    running.cancel()
    await asyncio.wait({running})

    assert naps[0] == reconcile_loop.RETRY_FIRST_S
    assert running.cancelled()
